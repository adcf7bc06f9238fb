"""Ferry converts checkpoints of language models into ExecuTorch bundles, runs them, and proves that
they compute what the original computes.

    import ferry

    ferry.convert("Qwen/Qwen3-0.6B", "qwen.bundle", quantize="8da4w", embedding_bits=8)
    for piece in ferry.run("qwen.bundle", [{"role": "user", "content": "Hello"}]):
        print(piece, end="", flush=True)
    print(ferry.verify("qwen.bundle", checkpoint="Qwen/Qwen3-0.6B").verdict)

Errors are :class:`ferry.Error` and its subclasses. docs/python.md has more.
"""

from importlib.util import find_spec as _find_spec

# In a source tree the compiled module is missing, and ``python -m ferry.reference`` needs none.
if _find_spec("ferry._native") is not None:
    from ferry._adapters import add_adapter, list_adapters, remove_adapter
    from ferry._bundle import (
        Bundle,
        EmbedOptions,
        GenerateOptions,
        Piece,
        Stream,
        Tokenizer,
        TranscribeOptions,
        embed,
        open,  # noqa: A004 - ferry.open() reads well
        run,
        transcribe,
        verify,
    )
    from ferry._convert import ConvertOptions, convert, plan
    from ferry._errors import (
        BadInputError,
        Error,
        ExistsError,
        InterruptedError,  # noqa: A004 - the name of the library
        IoError,
        UnsupportedError,
        UsageError,
    )
    from ferry._files import audit, check, inspect, sign
    from ferry._native import version
    from ferry._results import (
        Adapter,
        AdapterFactors,
        AdapterList,
        Audit,
        AuditFile,
        AuditItem,
        AuditTarget,
        AuditTotals,
        Buffer,
        BundleInfo,
        Case,
        Check,
        Component,
        Conversion,
        Entry,
        File,
        Finding,
        Generation,
        Inspection,
        Layer,
        Memory,
        Method,
        Metrics,
        Problem,
        Program,
        Segment,
        Signature,
        SignatureCheck,
        Signer,
        Tensor,
        Transcription,
        Value,
        Verification,
        Weights,
    )

    __all__ = [
        "Adapter",
        "AdapterFactors",
        "AdapterList",
        "Audit",
        "AuditFile",
        "AuditItem",
        "AuditTarget",
        "AuditTotals",
        "BadInputError",
        "Buffer",
        "Bundle",
        "BundleInfo",
        "Case",
        "Check",
        "Component",
        "Conversion",
        "ConvertOptions",
        "EmbedOptions",
        "Entry",
        "Error",
        "ExistsError",
        "File",
        "Finding",
        "GenerateOptions",
        "Generation",
        "Inspection",
        "InterruptedError",
        "IoError",
        "Layer",
        "Memory",
        "Method",
        "Metrics",
        "Piece",
        "Problem",
        "Program",
        "Segment",
        "Signature",
        "SignatureCheck",
        "Signer",
        "Stream",
        "Tensor",
        "Tokenizer",
        "TranscribeOptions",
        "Transcription",
        "UnsupportedError",
        "UsageError",
        "Value",
        "Verification",
        "Weights",
        "add_adapter",
        "audit",
        "check",
        "convert",
        "embed",
        "inspect",
        "list_adapters",
        "open",
        "plan",
        "remove_adapter",
        "run",
        "sign",
        "transcribe",
        "verify",
        "version",
    ]
