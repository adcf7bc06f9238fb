"""Conversions: a checkpoint becomes a bundle, or files of weights for other tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, Unpack

from ferry import _native
from ferry._common import Path, Progress, path_of, texts_of
from ferry._results import Conversion, build


class ConvertOptions(TypedDict, total=False):
    """Keywords of :func:`convert` and :func:`plan`; all of them may be left out.

    - ``format``: "bundle", "safetensors", "hf", "pth", "bpte", "gguf" or "mmproj", the projector of
      a vision-language model
    - ``config``, ``lora``: replace the config.json; the folder of an adapter to merge
    - ``mmproj``: of a GGUF file, its projector: the vision encoder that llama.cpp keeps apart
    - ``adapters``: folders by name, of adapters that stay apart for :meth:`Bundle.with_adapter`;
      ``int8_adapters``: their factors in codes of 8 bits
    - ``dtype``: "keep", "f32", "f16" or "bf16", of the matrices
    - ``quantize``: "none", "8da4w" (groups of 32), "8da4w-gN", "8da8w" or "int8"
    - ``quantize_rules``: globs of weights with other schemes; the last one that matches decides
    - ``embedding_bits``, ``embedding_group``: 4 or 8 bits; the group for 4 bits
    - ``hqq``: chooses scales by HQQ
    - ``calibrate_weights``: "default", or a file of text, token ids or chats that codes are chosen with
    - ``quantize_budget``: most bytes of a bundle, such as "105MB" or "4.6bpw"
    - ``gguf_type``: for GGUF, "auto" or a type such as "q8_0", "q4_k_m" or "iq4_xs"; for a
      projector "auto", "f32", "f16", "bf16" or "q8_0"
    - ``gguf_imatrix``: for GGUF, the file of an importance matrix
    - ``max_file_bytes``: limit of each file of weights; 0: none
    - ``allow_unmapped``: globs of keys that the model may leave unused
    - ``program``: "auto", "stateful", "static" or "encoder"
    - ``context_length``, ``prefill_length``, ``decode_length``, ``shards``: of programs
    - ``attention_sink``: sequences without an end: the first tokens and the last ones that every token attends to, such as (4, 252)
    - ``sink_text_positions``: with ``attention_sink``, RoPE turns by positions in the text instead of places in the caches
    - ``kv_type``, ``mask_type``, ``logits_type``: "f32", "f16", "bf16", "u16", "u8" or "i8"
    - ``all_logits``: logits of all tokens instead of the last one
    - ``images``: the vision tower too, or text alone (gemma3, gemma3n, gemma4, Qwen-VL); by default the tower if the checkpoint has it
    - ``sounds``: the audio encoder too (gemma3n, gemma4); where ``images`` or this is given, the other is false by default
    - ``max_patches``: most patches of an image, where the tower takes images of any shape
    - ``one_program``: one program of all components, with the methods of the official runners
    - ``image_size``: width and height of all pictures, with ``one_program``, where the tower takes images of any shape
    - ``max_sound``: most seconds of a sound, where the audio encoder takes samples of any number
    - ``max_source``: most tokens of a text that the encoder of an encoder-decoder takes
    - ``reference``: a file of expected outputs to embed
    """

    format: str
    config: Path
    lora: Path
    mmproj: Path
    adapters: Mapping[str, Path]
    int8_adapters: bool
    dtype: str
    quantize: str
    quantize_rules: Mapping[str, str]
    embedding_bits: int
    embedding_group: int
    hqq: bool
    calibrate_weights: Path
    quantize_budget: str
    gguf_type: str
    gguf_imatrix: Path
    max_file_bytes: int
    allow_unmapped: str | Iterable[str]
    program: str
    context_length: int
    prefill_length: int
    decode_length: int
    attention_sink: tuple[int, int]
    sink_text_positions: bool
    kv_type: str
    mask_type: str
    logits_type: str
    all_logits: bool
    shards: int
    images: bool | None
    sounds: bool | None
    max_patches: int
    image_size: tuple[int, int]
    one_program: bool
    max_sound: int
    max_source: int
    reference: Path


def convert(
    source: Path,
    output: Path,
    *,
    overwrite: bool = False,
    resume: bool = False,
    sync: bool = True,
    progress: Progress | None = None,
    threads: int = 0,
    **options: Unpack[ConvertOptions],
) -> Conversion:
    """Converts a checkpoint. Writes the whole output, or nothing.

    ``source`` is a folder, a tensor file, or a model of the Hugging Face cache as ORG/NAME. The
    ending of ``output`` says whether weights become one file or a folder of files. ``resume`` keeps
    finished work when stopped, and goes on after a run that was stopped. For ``options`` see
    :class:`ConvertOptions`.

    >>> convert("testdata/trained", "small.bundle", quantize="8da4w", embedding_bits=8).model_type
    'qwen3_5_text'
    """
    write = {"overwrite": overwrite, "resume": resume, "sync": sync, "path": path_of(output)}
    found = _native.convert(
        _options(source, options, path_of(output)), write, progress, threads
    )
    return build(Conversion, found, source=path_of(source), path=path_of(output))


def plan(
    source: Path,
    output: Path | None = None,
    *,
    threads: int = 0,
    **options: Unpack[ConvertOptions],
) -> Conversion:
    """Returns what :func:`convert` would make, with the exact size of every file. Writes nothing.

    >>> planned = plan("testdata/trained", dtype="f32")
    >>> planned.path is None, planned.bytes == sum(file.bytes for file in planned.files)
    (True, True)
    """
    found = _native.convert(_options(source, options, path_of(output)), None, None, threads)
    return build(Conversion, found, source=path_of(source), path=None)


def _options(source: Path, options: Mapping[str, Any], output: str) -> dict[str, object]:
    given = dict(options)
    for name in ("config", "lora", "mmproj", "reference", "gguf_imatrix", "calibrate_weights"):
        if name in given:
            given[name] = path_of(given[name])
    if "adapters" in given:
        adapters = (given["adapters"] or {}).items()
        given["adapters"] = [(name, path_of(folder)) for name, folder in adapters]
    if "quantize_rules" in given:
        given["quantize_rules"] = list((given["quantize_rules"] or {}).items())
    if "allow_unmapped" in given:
        given["allow_unmapped"] = texts_of(given["allow_unmapped"])
    return {**given, "source": path_of(source), "output": output}
