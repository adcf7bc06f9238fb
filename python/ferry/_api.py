"""The functions of the package, over the library of Ferry."""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ferry import _native, _results
from ferry._work import Progress, engine, run as _run

if TYPE_CHECKING:
    import numpy as np

Path = str | os.PathLike[str]


def _path(path: Path | None) -> str:
    return "" if path is None else os.fspath(path)


def version() -> str:
    """Returns the version of Ferry."""
    return str(_native.version())


def inspect(path: Path, *, threads: int | None = None) -> _results.Inspection:
    """Lists what is in a checkpoint, a program, a data file or a bundle. Reads headers alone.

    >>> inspect("testdata/trained").kind
    'checkpoint'
    """
    return _results.inspection_of(_run(lambda: _native.inspect(_path(path), engine(threads))))


def plan(
    source: Path,
    *,
    config: Path | None = None,
    lora: Path | None = None,
    format: str = "bundle",  # noqa: A002 - the word of the library
    gguf_type: str = "auto",
    dtype: str = "keep",
    quantize: str = "none",
    quantize_rules: Mapping[str, str] | None = None,
    embedding_bits: int = 0,
    embedding_group: int = 32,
    hqq: bool = False,
    max_file_bytes: int = 0,
    allow_unmapped: Sequence[str] = (),
    program: str = "auto",
    context_length: int | None = None,
    prefill_length: int | None = None,
    decode_length: int | None = None,
    kv_type: str = "f32",
    mask_type: str = "f32",
    logits_type: str = "f32",
    all_logits: bool = False,
    shards: int = 1,
    reference: Path | None = None,
    threads: int | None = None,
) -> Plan:
    """Plans a conversion. Nothing is written.

    ``source`` is a folder, a tensor file, or a model of the Hugging Face cache as ORG/NAME.
    ``format`` is "bundle", "safetensors", "hf", "pth", "bpte" or "gguf"; ``dtype`` "keep", "f32",
    "f16" or "bf16"; ``quantize`` "none", "8da4w", "8da4w-gN", "8da8w" or "int8".
    ``quantize_rules`` maps globs of weights to other schemes, and the last one that matches decides.

    >>> plan("testdata/trained", dtype="f32").summary.family
    'qwen3_5_text'
    """
    options = {
        "source": _path(source),
        "config": _path(config),
        "lora": _path(lora),
        "format": format,
        "gguf_type": gguf_type,
        "dtype": dtype,
        "quantize": quantize,
        "quantize_rules": list((quantize_rules or {}).items()),
        "embedding_bits": embedding_bits,
        "embedding_group": embedding_group,
        "hqq": hqq,
        "max_file_bytes": max_file_bytes,
        "allow_unmapped": list(allow_unmapped),
        "program": program,
        "context_length": context_length,
        "prefill_length": prefill_length,
        "decode_length": decode_length,
        "kv_type": kv_type,
        "mask_type": mask_type,
        "logits_type": logits_type,
        "all_logits": all_logits,
        "shards": shards,
        "reference": _path(reference),
    }
    workers = engine(threads)
    return Plan(_run(lambda: _native.plan(options, workers)), workers)


class Plan:
    """A planned conversion, from :func:`plan`."""

    def __init__(self, handle: _native.Plan, workers: _native.Engine) -> None:
        self._handle = handle
        self._engine = workers
        self.summary: _results.Conversion = _results.conversion_of(handle.summary())

    def write(
        self,
        path: Path,
        *,
        overwrite: bool = False,
        resume: bool = False,
        sync: bool = True,
        progress: Progress | None = None,
    ) -> _results.Conversion:
        """Writes the whole output, or nothing. ``resume`` goes on after a run that was stopped."""
        options = {"path": _path(path), "overwrite": overwrite, "resume": resume, "sync": sync}
        _run(lambda: self._handle.write(options, self._engine, progress))
        return self.summary


def convert(
    source: Path,
    path: Path,
    *,
    overwrite: bool = False,
    resume: bool = False,
    sync: bool = True,
    progress: Progress | None = None,
    **options: Any,
) -> _results.Conversion:
    """Converts a checkpoint. ``options`` are those of :func:`plan`.

    >>> convert("testdata/trained", "model.bundle", quantize="8da4w", embedding_bits=8).family
    'qwen3_5_text'
    """
    return plan(source, **options).write(
        path, overwrite=overwrite, resume=resume, sync=sync, progress=progress
    )


class Tokenizer:
    """The tokenizer of a checkpoint, a bundle, or a single file."""

    def __init__(self, source: Path | Bundle) -> None:
        if isinstance(source, Bundle):
            self._handle = _native.tokenizer_of(source._handle)
        else:
            self._handle = _native.tokenizer(_path(source))

    def encode(self, text: str, *, add_special: bool = True) -> list[int]:
        return list(self._handle.encode(text, add_special))

    def decode(self, tokens: Iterable[int], *, skip_special: bool = True) -> str:
        return str(self._handle.decode(list(tokens), skip_special))

    def find(self, token: str) -> int | None:
        """Returns the id of a token, or None."""
        return self._handle.find(token)


class Bundle:
    """An open bundle, from :func:`open`."""

    def __init__(self, handle: _native.Bundle, workers: _native.Engine) -> None:
        self._handle = handle
        self._engine = workers
        self._generator: _native.Generator | None = None
        self._embedder: _native.Embedder | None = None
        self.info: _results.BundleInfo = _results.bundle_info_of(handle.info())

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest of the bundle (docs/bundle_format.md)."""
        return dict(json.loads(self._handle.manifest_json()))

    def text_file(self, name: str) -> str:
        """Returns a file that was copied into the bundle, such as "tokenizer.json"."""
        return str(self._handle.text_file(name))

    def render_chat(self, messages: Sequence[Mapping[str, Any]], **variables: Any) -> str:
        """Renders a chat by the template of the checkpoint, as transformers does."""
        chat = {"add_generation_prompt": True, **variables, "messages": list(messages)}
        return str(_native.chat_template_of(self._handle).render_json(json.dumps(chat)))

    def _prompt(
        self,
        prompt: str | Sequence[int] | Sequence[Mapping[str, Any]],
        images: Sequence[Path],
    ) -> dict[str, Any]:
        paths = [_path(image) for image in images]
        if isinstance(prompt, str):
            return {"text": prompt, "images": paths}
        items = list(prompt)
        if items and isinstance(items[0], Mapping):
            chat = {"messages": items, "add_generation_prompt": True}
            return {"chat_json": json.dumps(chat), "images": paths}
        return {"tokens": items, "images": paths}

    def _loaded(self) -> _native.Generator:
        if self._generator is None:
            self._generator = _run(lambda: _native.generator(self._handle, {}, self._engine))
        return self._generator

    def generate(
        self,
        prompt: str | Sequence[int] | Sequence[Mapping[str, Any]],
        *,
        images: Sequence[Path] = (),
        **options: Any,
    ) -> _results.Generation:
        """Answers a prompt: a text, token ids, or the messages of a chat. ``options`` are those of
        :func:`run`."""
        generator = self._loaded()
        wanted = self._prompt(prompt, images)
        raw = _run(lambda: generator.generate(wanted, options, None))
        return _results.Generation(**{**raw, "tokens": tuple(raw["tokens"])})

    def stream(
        self,
        prompt: str | Sequence[int] | Sequence[Mapping[str, Any]],
        *,
        images: Sequence[Path] = (),
        **options: Any,
    ) -> Iterator[str]:
        """Yields the answer to a prompt piece by piece. Closing the iterator ends the answer."""
        generator = self._loaded()
        wanted = self._prompt(prompt, images)
        pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        closed = threading.Event()
        failure: list[BaseException] = []

        def on_token(_: int, text: str) -> bool:
            if text:
                pieces.put(text)
            return not closed.is_set()

        def work() -> None:
            try:
                generator.generate(wanted, options, on_token)
            except BaseException as error:  # noqa: BLE001 - it is raised again below
                failure.append(error)
            finally:
                pieces.put(None)

        thread = threading.Thread(target=work, name="ferry")
        thread.start()
        try:
            while True:
                try:
                    piece = pieces.get(timeout=0.05)
                except queue.Empty:
                    continue
                if piece is None:
                    break
                yield piece
        finally:
            closed.set()
            thread.join()
        if failure:
            raise failure[0]

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Returns the logits after the last of the tokens, [vocab_size] f32, from position 0."""
        generator = self._loaded()
        generator.restart()
        array: np.ndarray = _run(lambda: generator.forward(list(tokens)))
        return array

    def embed(
        self,
        texts: str | Sequence[str],
        *,
        prompt: str | None = None,
        prompt_name: str = "",
        truncate: bool = False,
        width: int | None = None,
        normalize: bool = False,
    ) -> np.ndarray:
        """Returns vectors of texts, f32: [texts, width], or [width] for a single text."""
        import numpy as np

        if self._embedder is None:
            self._embedder = _run(lambda: _native.embedder(self._handle, self._engine))
        embedder = self._embedder
        options = {
            "prompt": prompt,
            "prompt_name": prompt_name,
            "truncate": truncate,
            "width": width,
            "normalize": normalize,
        }
        if isinstance(texts, str):
            single: np.ndarray = _run(lambda: embedder.embed(texts, options))
            return single
        rows = [_run(lambda text=text: embedder.embed(text, options)) for text in texts]
        return np.stack(rows) if rows else np.empty((0, embedder.width), np.float32)


def open(  # noqa: A001 - ferry.open() reads well
    path: Path,
    *,
    config: Path | None = None,
    check_digests: bool = True,
    progress: Progress | None = None,
    threads: int | None = None,
) -> Bundle:
    """Opens a bundle, or a GGUF file, which is converted in memory.

    >>> open("sample.bundle").info.model_type
    'qwen3_5_text'
    """
    workers = engine(threads)
    handle = _run(
        lambda: _native.open(_path(path), _path(config), check_digests, workers, progress)
    )
    return Bundle(handle, workers)


def run(
    bundle: Path | Bundle,
    prompt: str | Sequence[int] | Sequence[Mapping[str, Any]],
    *,
    images: Sequence[Path] = (),
    max_new_tokens: int = 256,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    repetition_penalty: float = 1.0,
    seed: int = 0,
    stops: Sequence[str] = (),
    ignore_end_tokens: bool = False,
) -> Iterator[str]:
    """Yields the answer to a prompt piece by piece: a text, token ids, or the messages of a chat.

    A temperature of 0 always takes the likeliest token.

    >>> "".join(run("sample.bundle", "And it came to pass", max_new_tokens=12))
    ', when the people saw that the people had heard the'
    """
    opened = bundle if isinstance(bundle, Bundle) else open(bundle)
    return opened.stream(
        prompt,
        images=images,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repetition_penalty=repetition_penalty,
        seed=seed,
        stops=list(stops),
        ignore_end_tokens=ignore_end_tokens,
    )


def embed(bundle: Path | Bundle, texts: str | Sequence[str], **options: Any) -> np.ndarray:
    """Returns vectors of texts. ``options`` are those of :meth:`Bundle.embed`."""
    opened = bundle if isinstance(bundle, Bundle) else open(bundle)
    return opened.embed(texts, **options)


def verify(
    bundle: Path | Bundle,
    *,
    reference: Path | None = None,
    checkpoint: Path | None = None,
    config: Path | None = None,
    lora: Path | None = None,
    against: Path | None = None,
    images: Sequence[str] = (),
    tolerance: float | None = None,
    memory: int | None = None,
    progress: Progress | None = None,
) -> _results.Verification:
    """Compares what a bundle computes with a reference, its checkpoint or another bundle.

    A difference is no error: the verdict says so.

    >>> verify("sample.bundle", checkpoint="testdata/trained").proved
    True
    """
    opened = bundle if isinstance(bundle, Bundle) else open(bundle)
    options = {
        "reference": _path(reference),
        "checkpoint": _path(checkpoint),
        "config": _path(config),
        "lora": _path(lora),
        "against": _path(against),
        "images": list(images),
        "tolerance": tolerance,
        "memory": memory,
    }
    document = json.loads(
        _run(lambda: _native.verify_json(opened._handle, options, opened._engine, progress))
    )
    errors = document["errors"]
    return _results.Verification(
        verdict=document["verdict"],
        errors=_results.Errors(
            *(float(errors[name]) for name in ("max_abs", "mean_abs", "relative_rms", "cosine", "sqnr_db"))
        ),
        first_divergence=document["first_divergence"],
        greedy_match=document["greedy_match"],
        greedy_total=document["greedy_total"],
        document=document,
    )


def audit(
    path: Path,
    *,
    digests: bool = False,
    progress: Progress | None = None,
    threads: int | None = None,
) -> dict[str, Any]:
    """Accounts for every byte of an artifact. Returns the document of docs/auditing.md.

    >>> audit("testdata/trained")["totals"]["bytes"]
    3422116
    """
    text = _run(lambda: _native.audit_json(_path(path), digests, engine(threads), progress))
    return dict(json.loads(text))


def sign(
    path: Path,
    private_key: Path,
    *,
    passphrase_file: Path | None = None,
    certificate: Path | None = None,
    chain: Sequence[Path] = (),
    signature: Path | None = None,
    ignore_paths: Sequence[Path] = (),
    progress: Progress | None = None,
) -> _results.Signature:
    """Signs a bundle, any other folder or a file, by OpenSSF Model Signing."""
    options = {
        "path": _path(path),
        "private_key": _path(private_key),
        "passphrase_file": _path(passphrase_file),
        "certificate": _path(certificate),
        "chain": [_path(file) for file in chain],
        "signature": _path(signature),
        "ignore_paths": [_path(file) for file in ignore_paths],
    }
    raw = _run(lambda: _native.sign(options, engine(), progress))
    return _results.Signature(**{**raw, "ignored": tuple(raw["ignored"])})


def check(
    path: Path,
    *,
    public_key: Path | None = None,
    root_certificates: Sequence[Path] = (),
    signature: Path | None = None,
    progress: Progress | None = None,
) -> _results.Check:
    """Hashes every byte of a bundle and validates all of its files. With a key or certificates that
    the caller trusts, it checks the signature too.

    >>> check("sample.bundle").ok
    True
    """
    raw = _run(lambda: _native.check_bundle(_path(path), engine(), progress))
    signed = None
    if public_key is not None or root_certificates:
        options = {
            "path": _path(path),
            "signature": _path(signature),
            "public_key": _path(public_key),
            "root_certificates": [_path(file) for file in root_certificates],
        }
        found = _run(lambda: _native.check_signature(options, engine(), progress))
        signed = _results.SignatureCheck(**{**found, "differences": tuple(found["differences"])})
    problems = tuple(_results.Problem(file, text, code) for code, file, text in raw["problems"])
    return _results.Check(raw["files"], raw["bytes"], problems, signed)
