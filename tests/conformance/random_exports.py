"""Random programs of the official exporter, portable and with XNNPACK, in ferry.

Each draw is a torch module of three to twelve operators with random shapes and dtypes (random_modules.py), in one draw of three with dimensions
that may vary. `ferry execute` is compared with eager torch on three random inputs: within 1e-5 of the largest value, 4 times the distance of
the official runtime from torch, or 8 times what the outputs of torch move when the inputs are moved by one unit in the last place. Where XNNPACK
computes something else than torch, in ferry as in the official runtime, ferry is within 1e-5 of the latter.

Draws that the exporter does not export are drawn again. A program with an operator that ferry does not have is held where ferry refuses it by name,
and one that is malformed (its exporter states shapes that its operators do not give) where neither runtime executes it.
"""
import random
import shutil

import numpy

import common
import official
import official_export
from common import Wrong


def varying(inputs):
    """torch.export's shapes that may vary: the first dimension of all inputs that have its size."""
    import torch
    size = inputs[0].shape[0]
    if size < 2:
        return None
    dim = torch.export.Dim("length", min=1, max=2 * size)
    return {"inputs": tuple({0: dim} if t.dim() == inputs[0].dim() and t.shape[0] == size else None for t in inputs)}


def like(value, rows, choose):
    """Another array of the dtype, with another number of rows where `rows` is one."""
    shape = value.shape if rows is None else (rows, *value.shape[1:])
    return choose.standard_normal(shape).astype(value.dtype) if value.dtype.kind == "f" else choose.integers(0, 9, shape).astype(value.dtype)


def calls_of(inputs, shapes, choose):
    calls = [[t.contiguous().numpy() for t in inputs]]
    for rows in (1, 2 * inputs[0].shape[0]) if shapes else (None, None):
        calls.append([like(v, rows if shapes and shapes["inputs"][i] else None, choose) for i, v in enumerate(calls[0])])
    return calls


def distance(ours, theirs):
    """The largest difference relative to the largest value of an output; equal NaN and infinities differ by nothing."""
    out = 0.0
    for run, other in zip(ours, theirs):
        for a, b in zip(run, other):
            a, b = a.reshape(-1).astype("f8"), b.reshape(-1).astype("f8")
            same = (a == b) | (numpy.isnan(a) & numpy.isnan(b))
            with numpy.errstate(invalid="ignore"):
                apart = numpy.where(same, 0.0, abs(a - b))
            finite = abs(b[numpy.isfinite(b)])
            out = max(out, numpy.nan_to_num(apart, nan=numpy.inf).max(initial=0.0) / max(1.0, finite.max(initial=0.0)))
    return out


def outputs_of_official(runtime, folder, calls, last):
    """None where the official runtime does not execute the program for all of the calls, which its own exporter made."""
    try:
        return runtime(official.outputs_of, folder / "program.pte", calls, None, "forward", last)
    except (RuntimeError, Wrong):
        return None


def drawn_case(promise, runtime, seed, xnnpack):
    """One draw."""
    import random_modules
    choose, numbers = random.Random(seed), numpy.random.default_rng(seed)
    folder = promise.folder / f"{seed}-{xnnpack}"
    for _ in range(20):
        module, inputs = random_modules.drawn(choose)
        shapes = varying(inputs) if choose.random() < 0.33 else None
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            official_export.lowered(module, inputs, xnnpack, folder / "program.pte", shapes)
            calls, last = calls_of(inputs, shapes, numbers), official_export.channels_last(inputs)
            expected = official_export.torch_outputs(module, calls, last)
            break
        except Exception:  # whatever the exporter or torch throws
            continue
    else:
        raise Wrong("no draw was exported")
    try:
        ours, refusal = official_export.ferry_outputs(folder / "program.pte", calls, folder)
    except Wrong as wrong:
        # A refusal as malformed, not a crash.
        if "exits 3," not in str(wrong) or outputs_of_official(runtime, folder, calls, last):
            raise
        promise.note("executed by neither")
        return f"the official runtime does not execute it either: {wrong}"
    if ours is None:
        promise.note("refused by name")
        return f"refused: {refusal.split(':', 1)[-1].strip()[:120]}"
    if [[o.size for o in run] for run in ours] != [[o.size for o in run] for run in expected]:
        raise Wrong(f"sizes of outputs {[[o.size for o in run] for run in ours]}, {[[o.size for o in run] for run in expected]}")
    error = distance(ours, expected)
    theirs = outputs_of_official(runtime, folder, calls, last)
    noise, apart = (distance(theirs, expected), distance(ours, theirs)) if theirs else (0.0, numpy.inf)
    moved = [official_export.torch_outputs(module, [official_export.moved(call, numbers) for call in calls], last) for _ in range(4)]
    allowed = max(1e-5, 4 * noise if noise < 1e-2 else 0.0, 8 * max(distance(m, expected) for m in moved))
    if not error <= allowed and not apart <= 1e-5:
        raise Wrong(f"{error:.2e} from torch, allowed {allowed:.2e}, the official runtime {noise:.2e}: {[getattr(f, '__qualname__', f) for f, _ in module.steps]}")
    if theirs is None:
        promise.note("not executed by the official runtime")
    return f"{len(module.steps)} operators{', varying' if shapes else ''}: {error:.1e} from torch, official {noise:.1e}"


def main():
    promise = common.Promise(__doc__, count=40)
    runtime = official.Runtime()
    for seed in range(promise.seed, promise.seed + (6 if promise.sample else promise.options.count)):
        for xnnpack in (False, True):
            promise.case(f"draw {seed}, {'XNNPACK' if xnnpack else 'portable'}", drawn_case, promise, runtime, seed, xnnpack)
    runtime.close()
    promise.finish()


if __name__ == "__main__":
    main()
