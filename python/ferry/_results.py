"""What the functions return: frozen dataclasses, whose members have the names that the JSON
documents of the program give them (docs/schemas)."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar


@dataclass(frozen=True)
class File:
    """A file and its size."""

    path: str
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
    """An input or an output of a method."""

    name: str
    type: str  # the dtype of a tensor, or "int", "bool", "double"
    shape: tuple[int, ...]  # upper bounds
    bytes: int


@dataclass(frozen=True)
class Buffer:
    """A mutable buffer of a method."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class Method:
    """A method of a program."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    buffers: tuple[Buffer, ...]
    operators: dict[str, int]  # how often each is called
    delegates: tuple[str, ...]  # names of the backends
    planned_bytes: int


@dataclass(frozen=True)
class Program:
    """A program file."""

    file: str
    methods: tuple[Method, ...]


@dataclass(frozen=True)
class Inspection:
    """What is in a file or a folder."""

    kind: str  # "checkpoint", "program", "data" or "bundle"
    path: str
    model_type: str  # of a bundle
    files: tuple[File, ...]  # of a bundle
    tensors: tuple[Tensor, ...]
    programs: tuple[Program, ...]


@dataclass(frozen=True)
class Entry:
    """What became of a key of the checkpoint."""

    source: str  # empty for a weight that shares the values of another one
    targets: tuple[str, ...]  # empty where the key is not used
    rule: str
    reason: str  # why the key is not used


@dataclass(frozen=True)
class Memory:
    """What the programs plan at run time; 0 for formats of weights alone."""

    activation_bytes: int
    state_bytes: int


@dataclass(frozen=True)
class Conversion:
    """What a conversion has made, or would make."""

    path: str | None  # None: nothing was written
    source: str
    model_type: str
    files: tuple[File, ...]  # their exact sizes
    bytes: int
    memory: Memory
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]  # what the output lacks or cannot do


@dataclass(frozen=True)
class Component:
    """A part of the model that is executed separately."""

    role: str  # "text_decoder", "vision_encoder"
    weight_dtype: str
    quantization: str  # such as "8da4w-g32 x 14"; empty where nothing is quantised
    programs: tuple[str, ...]


@dataclass(frozen=True)
class BundleInfo:
    """What a bundle says about itself."""

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
    adapters: tuple[str, ...]  # names for Bundle.with_adapter()
    adapter: str  # the one that is chosen; empty for none


@dataclass(frozen=True)
class Generation:
    """An answer of the model."""

    tokens: tuple[int, ...]
    text: str
    stop: str  # "eos", "max_new", "stop_text", "context" or "interrupted"
    prompt_tokens: int
    reused_tokens: int  # tokens of the prompt that were still in the caches


@dataclass(frozen=True)
class Segment:
    """A part of a transcription."""

    start: float  # in seconds
    end: float
    text: str  # without special tokens
    tokens: tuple[int, ...]  # with those of time


@dataclass(frozen=True)
class Transcription:
    """The text of speech."""

    text: str  # of all segments, without special tokens
    segments: tuple[Segment, ...]  # without timestamps one for each window
    tokens: tuple[int, ...]  # of all segments
    forced_tokens: tuple[int, ...]  # those that each window begins with
    forced: str  # the forced tokens as text
    timestamps: bool  # whether tokens of time were generated
    duration: float  # of the sound, in seconds
    windows: int  # how many times the encoder ran
    encode_seconds: float
    decode_seconds: float


@dataclass(frozen=True)
class Metrics:
    """Distance between computed and expected outputs."""

    max_abs: float
    mean_abs: float
    rel_rms: float
    cosine: float
    sqnr_db: float  # 999 where the values are equal
    kl_mean: float
    kl_max: float
    top1_agreement: float
    greedy_match: int
    greedy_total: int


@dataclass(frozen=True)
class Layer:
    """Distance of a tensor on the way to the output."""

    name: str
    max_abs: float
    sqnr_db: float
    within: bool


@dataclass(frozen=True)
class Case:
    """A prompt of the reference."""

    prompt: str
    tokens: int
    skipped: str  # why it was not run; empty otherwise
    parity: bool
    greedy_match: int
    greedy_total: int


@dataclass(frozen=True)
class Weights:
    """The weights of a bundle, compared with those of its checkpoint bit for bit."""

    compared: int
    bytes: int
    different: tuple[str, ...]


@dataclass(frozen=True)
class Verification:
    """Whether a bundle computes what it is compared with.

    ``verdict`` is "parity", "not proved" (nothing differs, but the comparison could not tell a
    wrong bundle) or "no parity".
    """

    path: str
    verdict: str
    parity: bool
    output: str  # what ``metrics`` is about, such as "logits"
    metrics: Metrics
    first_divergence: str  # the first tensor that is too far; empty if there is none
    layers: tuple[Layer, ...]
    cases: tuple[Case, ...]
    tensors: Weights | None  # None where no checkpoint was given
    programs_equal: bool | None


@dataclass(frozen=True)
class AuditTarget:
    """The artifact of an audit."""

    name: str
    type: str
    bytes: int
    model_type: str


@dataclass(frozen=True)
class AuditTotals:
    """Sums of an audit."""

    bytes: int
    elements: int
    files: int
    items: int
    tensors: int
    unaccounted: int  # bytes that belong to nothing


@dataclass(frozen=True)
class AuditFile:
    """A file of the artifact."""

    path: str
    bytes: int
    type: str


@dataclass(frozen=True)
class AuditItem:
    """A stretch of bytes of a file."""

    file: int  # index in ``files``
    offset: int
    bytes: int
    kind: str
    component: str
    name: str = ""
    dtype: str = ""
    shape: tuple[int, ...] = ()
    layer: int | None = None
    sha256: str = ""  # with ``digests``


@dataclass(frozen=True)
class Finding:
    """Something that may be worth a change."""

    id: str
    severity: str
    bytes: int
    count: int
    items: tuple[str, ...]
    message: str
    remedy: str


@dataclass(frozen=True)
class Audit:
    """Where every byte of an artifact goes. ``document`` is all of docs/auditing.md."""

    target: AuditTarget
    totals: AuditTotals
    files: tuple[AuditFile, ...]
    items: tuple[AuditItem, ...]
    findings: tuple[Finding, ...]
    document: dict[str, Any] = dataclasses.field(repr=False, compare=False)


@dataclass(frozen=True)
class Signer:
    """Whose key has signed."""

    key_sha256: str  # of the public key as PEM
    subject: str  # of the certificate; empty where there is none


@dataclass(frozen=True)
class Signature:
    """A signature that was written."""

    path: str  # of what is signed
    signature: str
    signer: Signer
    sha256: str  # over the digests of all files
    files: int
    bytes: int
    ignored: tuple[str, ...]  # existing files that are not signed


@dataclass(frozen=True)
class SignatureCheck:
    """Whether a model is what its signer signed."""

    ok: bool
    stage: str  # the step that failed: "signature" or "manifest"
    message: str
    signer: Signer | None  # None where the signature is not valid
    differences: tuple[str, ...]  # a line for each file that differs
    files: int  # how many were hashed
    bytes: int


@dataclass(frozen=True)
class Adapter:
    """An adapter of a bundle."""

    name: str  # for Bundle.with_adapter()
    path: str  # of its data file, in the bundle
    bytes: int
    sha256: str


@dataclass(frozen=True)
class AdapterFactors:
    """A weight for which adapters may have factors."""

    weight: str  # such as "layers.0.attention.wq.weight"
    embedding: bool  # a table, not the matrix of a linear layer
    rank: int  # the largest that fits


@dataclass(frozen=True)
class AdapterList:
    """The adapters of a bundle, and what adapters it can hold."""

    path: str
    dtype: str  # of the factors; empty where the programs take none
    factors: tuple[AdapterFactors, ...]
    adapters: tuple[Adapter, ...]


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with a file."""

    path: str  # in the bundle; empty for the folder itself
    code: str  # as Error.kind
    message: str


@dataclass(frozen=True)
class Check:
    """Whether a bundle or a file is intact, and who signed it."""

    path: str
    kind: str  # "bundle", "checkpoint", "program" or "data"; empty for a signed model of others
    files: int
    bytes: int
    tensors: int  # that were read; of a checkpoint or a data file
    problems: tuple[Problem, ...]
    signature: SignatureCheck | None  # None where no key was given

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong, the signature included."""
        return not self.problems and (self.signature is None or self.signature.ok)


T = TypeVar("T")


def build(kind: type[T], raw: Mapping[str, Any], **more: Any) -> T:
    """Returns a dataclass with the members of ``raw`` and ``more`` that it has."""
    members = {**raw, **more}
    hints = _hints(kind)  # type: ignore[arg-type]  # mypy takes a type for not hashable
    return kind(
        **{name: _value(hint, members[name]) for name, hint in hints.items() if name in members}
    )


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _value(hint: Any, value: Any) -> Any:
    if isinstance(hint, types.UnionType):
        if value is None:
            return None
        hint = next(part for part in hint.__args__ if part is not type(None))
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return value if isinstance(value, hint) else build(hint, value)
    if typing.get_origin(hint) is tuple:
        item = typing.get_args(hint)[0]
        return tuple(_value(item, each) for each in value)
    return value
