"""Ferry converts checkpoints of language models into ExecuTorch bundles, runs them, and proves that
they compute what the original computes.

    import ferry

    ferry.convert("Qwen/Qwen3-0.6B", "qwen.bundle", quantize="8da4w", embedding_bits=8)
    for text in ferry.run("qwen.bundle", [{"role": "user", "content": "Hello"}]):
        print(text, end="", flush=True)
    assert ferry.verify("qwen.bundle", checkpoint="Qwen/Qwen3-0.6B").proved

Errors are :class:`ferry.Error` and its subclasses. docs/python.md has more.
"""

from importlib.util import find_spec as _find_spec

# In a source tree the compiled module is missing, and ``python -m ferry.reference`` needs none.
if _find_spec("ferry._native") is not None:
    from ferry._api import (
        Bundle,
        Plan,
        Tokenizer,
        audit,
        check,
        convert,
        embed,
        inspect,
        open,  # noqa: A004 - ferry.open() reads well
        plan,
        run,
        sign,
        verify,
        version,
    )
    from ferry._errors import (
        BadInputError,
        Error,
        ExistsError,
        InterruptedError,  # noqa: A004 - the name of the library
        IoError,
        UnsupportedError,
        UsageError,
    )
    from ferry._results import (
        BundleInfo,
        Check,
        Component,
        Conversion,
        Errors,
        File,
        Generation,
        Inspection,
        MappedKey,
        Method,
        Problem,
        Program,
        Signature,
        SignatureCheck,
        Tensor,
        Value,
        Verification,
    )

    __all__ = [
        "BadInputError",
        "Bundle",
        "BundleInfo",
        "Check",
        "Component",
        "Conversion",
        "Error",
        "Errors",
        "ExistsError",
        "File",
        "Generation",
        "Inspection",
        "InterruptedError",
        "IoError",
        "MappedKey",
        "Method",
        "Plan",
        "Problem",
        "Program",
        "Signature",
        "SignatureCheck",
        "Tensor",
        "Tokenizer",
        "UnsupportedError",
        "UsageError",
        "Value",
        "Verification",
        "audit",
        "check",
        "convert",
        "embed",
        "inspect",
        "open",
        "plan",
        "run",
        "sign",
        "verify",
        "version",
    ]
