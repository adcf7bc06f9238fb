"""Spool writes a safetensors file tensor by tensor, so that memory holds one tensor, and the file appears whole."""
import json
import os
import pathlib
import shutil
import tempfile

from .errors import EXISTS, IO, USAGE, Refused

MADE_BY = "ferry.reference"
DTYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64"}
MOST_HEADER_BYTES = 100_000_000


def metadata_of(path):
    """The metadata of a safetensors file; {} of any other file."""
    try:
        with open(path, "rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size)) if size <= MOST_HEADER_BYTES else {}
        return header.get("__metadata__") or {}
    except (OSError, ValueError, AttributeError, MemoryError):
        return {}


def check(path):
    """Refuses a path that cannot be written, before anything is computed. Replaces none but its own files."""
    path = pathlib.Path(path)
    if path.suffix != ".safetensors":
        raise Refused(USAGE, f"{path}: the reference is a safetensors file; name it {path}.safetensors")
    if not path.parent.is_dir():
        raise Refused(IO, f"{path}: the folder {path.parent} does not exist")
    if path.exists() and metadata_of(path).get("made_by") != MADE_BY:
        raise Refused(EXISTS, f"{path}: exists, and is no file of {MADE_BY}")


class Spool:
    """Collects tensors in a temporary file; finish() makes the safetensors file of them."""

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.header, self.bytes = {}, 0
        try:
            self.data = tempfile.TemporaryFile(dir=self.path.parent)
        except OSError as error:
            raise Refused(IO, f"{path}: {error.strerror}")

    def add(self, name, tensor):
        import torch
        tensor = tensor.detach().cpu().contiguous()
        raw = tensor.reshape(-1).view(torch.uint8).numpy()
        self.header[name] = dict(dtype=DTYPES[str(tensor.dtype).removeprefix("torch.")], shape=list(tensor.shape),
                                 data_offsets=[self.bytes, self.bytes + raw.nbytes])
        try:
            self.data.write(memoryview(raw))
        except OSError as error:
            raise Refused(IO, f"{self.path}: {error.strerror}")
        self.bytes += raw.nbytes

    def finish(self, metadata):
        """Writes the file under a temporary name, and renames it when all of it is on the disk."""
        text = json.dumps({"__metadata__": dict(metadata, made_by=MADE_BY), **self.header}).encode()
        text += b" " * (-len(text) % 8)
        temporary = None
        try:
            with tempfile.NamedTemporaryFile(dir=self.path.parent, prefix=f".{self.path.name}.", delete=False) as file:
                temporary = file.name
                file.write(len(text).to_bytes(8, "little") + text)
                self.data.seek(0)
                shutil.copyfileobj(self.data, file, 1 << 20)
                file.flush()
                os.fsync(file.fileno())
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(temporary, 0o666 & ~mask)
            os.replace(temporary, self.path)
            temporary = None
        except OSError as error:
            raise Refused(IO, f"{self.path}: {error.strerror}")
        finally:
            if temporary:
                os.unlink(temporary)
