"""What the functions of the package return: frozen dataclasses with the names that the JSON
documents of the program have (docs/schemas)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class File:
    """A file and its size."""

    name: str
    bytes: int


@dataclass(frozen=True)
class Tensor:
    """A tensor of a checkpoint or of a data file."""

    name: str
    dtype: str  # such as "bf16"; empty for data of a delegate
    shape: tuple[int, ...]
    file: str
    stored: str  # how it is stored: a dtype or an encoding such as "q8_0"
    stored_bytes: int


@dataclass(frozen=True)
class Value:
    """An input, an output or a mutable buffer of a method."""

    name: str
    kind: str  # the dtype of a tensor, or "int", "bool", "double"
    shape: tuple[int, ...]  # upper bounds
    bytes: int


@dataclass(frozen=True)
class Method:
    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    buffers: tuple[Value, ...]
    operators: dict[str, int]  # how often each is used
    delegates: tuple[str, ...]
    planned_bytes: int


@dataclass(frozen=True)
class Program:
    file: str
    methods: tuple[Method, ...]


@dataclass(frozen=True)
class Inspection:
    """What is in a file or folder."""

    kind: str  # "checkpoint", "program", "data" or "bundle"
    path: str
    model_type: str  # of a bundle
    files: tuple[File, ...]  # of a bundle
    tensors: tuple[Tensor, ...]
    programs: tuple[Program, ...]


@dataclass(frozen=True)
class MappedKey:
    """What became of a key of the checkpoint."""

    source: str  # empty for a weight that shares the values of another one
    targets: tuple[str, ...]  # empty where the key is not used
    rule: str
    reason: str  # why the key is not used


@dataclass(frozen=True)
class Conversion:
    """What a conversion makes, or has made."""

    family: str
    files: tuple[File, ...]
    total_bytes: int
    activation_bytes: int
    state_bytes: int
    keys: tuple[MappedKey, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Component:
    """A part of the model that is executed separately."""

    role: str  # "text_decoder", "vision_encoder"
    weight_dtype: str
    quantization: str  # such as "8da4w-g32 x 14"; empty where nothing is quantised
    programs: tuple[str, ...]


@dataclass(frozen=True)
class BundleInfo:
    path: str
    model_type: str
    program_kind: str  # "stateful", "static" or "encoder"
    tool_version: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    context_length: int
    prefill_length: int
    bos_token: int | None
    end_tokens: tuple[int, ...]
    components: tuple[Component, ...]
    files: tuple[File, ...]
    has_reference: bool


@dataclass(frozen=True)
class Generation:
    """An answer of the model."""

    tokens: tuple[int, ...]
    text: str
    stop: str  # "end_token", "max_new_tokens", "stop_text", "context_full" or "callback"
    prompt_tokens: int
    reused_tokens: int  # tokens of the prompt that were still in the caches


@dataclass(frozen=True)
class Errors:
    """Distance between computed and expected values."""

    max_abs: float
    mean_abs: float
    relative_rms: float
    cosine: float
    sqnr_db: float  # 999 where the values are equal


@dataclass(frozen=True)
class Verification:
    """Whether a bundle computes what it is compared with.

    ``verdict`` is "proved", "not_proved" (nothing differs, but the comparison could not tell a
    wrong bundle) or "no_parity". ``document`` has all members of the JSON document.
    """

    verdict: str
    errors: Errors
    first_divergence: str
    greedy_match: int
    greedy_total: int
    document: dict[str, Any] = field(repr=False)

    @property
    def proved(self) -> bool:
        return self.verdict == "proved"


@dataclass(frozen=True)
class Signature:
    file: str
    key_sha256: str
    subject: str
    root_sha256: str
    files: int
    bytes: int
    ignored: tuple[str, ...]


@dataclass(frozen=True)
class SignatureCheck:
    verified: bool
    stage: str  # the step that failed: "signature" or "manifest"
    message: str
    differences: tuple[str, ...]
    key_sha256: str
    subject: str
    hashed_files: int
    hashed_bytes: int


@dataclass(frozen=True)
class Problem:
    file: str  # empty for the folder itself
    message: str
    exit_code: int


@dataclass(frozen=True)
class Check:
    """Whether a bundle is intact, and who signed it."""

    files: int
    bytes: int
    problems: tuple[Problem, ...]
    signature: SignatureCheck | None  # None where no key was given

    @property
    def ok(self) -> bool:
        return not self.problems and (self.signature is None or self.signature.verified)


def files_of(rows: list[tuple[str, int]]) -> tuple[File, ...]:
    return tuple(File(*row) for row in rows)


def inspection_of(raw: dict[str, Any]) -> Inspection:
    def values(rows: list[Any]) -> tuple[Value, ...]:
        return tuple(Value(name, kind, tuple(shape), size) for name, kind, shape, size in rows)

    def method(row: Any) -> Method:
        name, inputs, outputs, buffers, operators, delegates, planned = row
        return Method(name, values(inputs), values(outputs), values(buffers), dict(operators),
                      tuple(delegates), planned)

    tensors = tuple(Tensor(n, d, tuple(s), f, st, b) for n, d, s, f, st, b in raw["tensors"])
    programs = tuple(Program(file, tuple(map(method, methods))) for file, methods in raw["programs"])
    return Inspection(raw["kind"], raw["path"], raw["model_type"], files_of(raw["files"]), tensors,
                      programs)


def conversion_of(raw: dict[str, Any]) -> Conversion:
    keys = tuple(MappedKey(s, tuple(t), rule, reason) for s, t, rule, reason in raw["keys"])
    return Conversion(**{**raw, "files": files_of(raw["files"]), "keys": keys,
                         "notes": tuple(raw["notes"])})


def bundle_info_of(raw: dict[str, Any]) -> BundleInfo:
    components = tuple(Component(r, d, q, tuple(p)) for r, d, q, p in raw["components"])
    return BundleInfo(**{**raw, "components": components, "files": files_of(raw["files"]),
                         "end_tokens": tuple(raw["end_tokens"])})
