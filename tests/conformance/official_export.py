"""Programs of the official ExecuTorch exporter, portable and with XNNPACK, in ferry.

Each module of export_modules.py is exported, executed by `ferry execute` and by the official runtime on three random inputs, and by
eager torch. In f32 ferry is within 1e-5 of the largest value of torch, or 4 times the distance of the official runtime from it. Linear layers
quantised by torchao (8-bit activations) are compared with the official runtime: within 3 times what its outputs move when the
inputs are moved by one unit in the last place. Models in codes of 8 bits are within 3 codes of it.

A program with an operator that ferry does not have counts as held where ferry exits with 4 and names operators or nodes. Which operators
of the official runtime those may be is stated in docs/delegates.md, and compared with the table of ferry's sources.
"""
import re
import warnings

import numpy

import common
import official
from common import Ferry, Wrong

NUMPY = {"f32": "<f4", "f16": "<f2", "i64": "<i8", "i32": "<i4", "u8": "u1", "i8": "i1", "bool": "?", "f64": "<f8", "float": "<f4", "long": "<i8"}
SAMPLE = ("gelu", "softmax", "amax", "bmm", "linear", "layer_norm", "rms_norm", "embedding", "gated_mlp", "attention", "attention_fused",
          "block", "state", "conv2d", "group_norm", "topk", "channels_last", "channels_last_inside")
OPERATORS = ("per key", "128", "448", "int8", "cdist 2.0", "rfft of 30", "tile_crop", "map", "scan", "log_mel")  # the sample's


def lowered(module, inputs, xnnpack, path, shapes=None):
    """Exports a module, whose dimensions vary as torch.export's `shapes` say, and writes the program."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(module, inputs, strict=False, dynamic_shapes=shapes)
        edge = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()] if xnnpack else None,
                                           compile_config=EdgeCompileConfig(_check_ir_validity=False))  # custom operators are no core ones
        path.write_bytes(edge.to_executorch().buffer)
    return path


def ferry_outputs(path, calls, folder):
    """Outputs of each call by `ferry execute`; None where it refuses an operator by name."""
    lines = []
    for i, call in enumerate(calls):
        words = []
        for j, value in enumerate(call):
            raw = folder / f"in{i}_{j}.bin"
            raw.write_bytes(value.tobytes())
            words.append(f"{raw}@{','.join(map(str, value.shape))}")
        lines.append(" ".join(words))
    (folder / "script").write_text("\n".join(lines) + "\n")
    out = folder / "out"
    out.mkdir(exist_ok=True)
    ran = Ferry("execute", path, "--script", folder / "script", "--outdir", out, "--quiet").ends_with(0, 4)
    if ran.code == 4:
        if not re.search(r"operator|node|delegate|[a-z_]+::[a-z_]+|aten", ran.err):
            raise Wrong(f"exits 4 and names no operator: {ran.why}")
        return None, ran.why
    outputs = [[] for _ in calls]
    for line in (out / "manifest.txt").read_text().splitlines():
        stem, dtype = line.split()[:2]
        run = int(stem[3:].split("_")[0])
        outputs[run].append(numpy.fromfile(out / f"{stem}.bin", dtype=NUMPY[dtype.lower()]))
    return outputs, ""


def moved(values, choose):
    """Inputs of floats, each moved by one unit in the last place."""
    return [numpy.nextafter(v, numpy.where(choose.random(v.shape) < 0.5, -numpy.inf, numpy.inf).astype(v.dtype)) if v.dtype.kind == "f" else v
            for v in values]


def largest(ours, theirs):
    return max((abs(a.reshape(-1).astype("f8") - b.reshape(-1)).max() if a.size else 0.0) for run, other in zip(ours, theirs)
               for a, b in zip(run, other))


def channels_last(inputs):
    """Places of the inputs that have their channels last in memory."""
    import torch
    return [i for i, t in enumerate(inputs) if t.dim() == 4 and not t.is_contiguous() and t.is_contiguous(memory_format=torch.channels_last)]


def torch_outputs(module, calls, last):
    """What eager torch computes of each call, row-major."""
    import torch
    out = []
    with torch.no_grad():
        for call in calls:
            given = [torch.from_numpy(v.copy()) for v in call]
            made = module(*[t.to(memory_format=torch.channels_last) if i in last else t for i, t in enumerate(given)])
            out.append([o.detach().contiguous().numpy().copy() for o in (made if isinstance(made, (tuple, list)) else [made])])
    return out


def module_case(promise, runtime, name, module, inputs, xnnpack):
    """One module through exporter, ferry, official runtime and torch."""
    choose = numpy.random.default_rng(promise.seed)
    folder = promise.folder / f"{name}-{xnnpack}"
    folder.mkdir()
    calls, last = [[i.contiguous().numpy() for i in inputs]], channels_last(inputs)
    calls += [[choose.standard_normal(v.shape).astype(v.dtype) if v.dtype.kind == "f" else v for v in calls[0]] for _ in range(2)]
    path = lowered(module, inputs, xnnpack, folder / "program.pte")
    expected = torch_outputs(module, calls, last)
    ours, refusal = ferry_outputs(path, calls, folder)
    if ours is None:
        promise.note("refused by name")
        return f"refused: {refusal.split(':', 1)[-1].strip()[:120]}"
    if [[o.size for o in run] for run in ours] != [[o.size for o in run] for run in expected]:
        raise Wrong(f"sizes of outputs {[[o.size for o in run] for run in ours]}")
    size = max(1.0, max(abs(o.astype("f8")).max() for run in expected for o in run))
    error = largest(ours, expected)
    try:
        theirs = runtime(official.outputs_of, path, calls, None, "forward", last)
    except RuntimeError as why:  # the official runtime refuses some programs of its own exporter
        if not error <= 1e-5 * size:
            raise Wrong(f"{error:.2e} from torch, values up to {size:.2g}; the official runtime: {why}")
        promise.note("not executed by the official runtime")
        return f"{error:.1e} from torch; the official runtime: {' '.join(str(why).split())[:80]}"
    noise = largest(theirs, expected)
    if not error <= max(1e-5 * size, 4 * noise):
        raise Wrong(f"{error:.2e} from torch, the official runtime {noise:.2e}, values up to {size:.2g}")
    return f"{error:.1e} from torch, official {noise:.1e}"


def quantised_case(promise, runtime, bits, group):
    """Linear layers with 8-bit activations and 4 or 8-bit weights, by torchao."""
    import torch
    import torchao.quantization as ao
    from export_modules import GatedMLP
    choose = numpy.random.default_rng(promise.seed)
    folder = promise.folder / f"quantised-{bits}-{group}"
    folder.mkdir()
    torch.manual_seed(promise.seed)
    module = GatedMLP(64, 128, torch.nn.functional.silu).eval()
    granularity = ao.PerGroup(group) if group else ao.PerAxis(0)
    ao.quantize_(module, ao.Int8DynamicActivationIntxWeightConfig(weight_dtype=getattr(torch, f"int{bits}"), weight_granularity=granularity))
    inputs = (torch.randn(1, 6, 64),)
    path = lowered(module, inputs, True, folder / "program.pte")
    call = [inputs[0].numpy()]
    ours, refusal = ferry_outputs(path, [call], folder)
    if ours is None:
        raise Wrong(f"refused: {refusal}")
    theirs = runtime(official.outputs_of, path, [call])
    noise = max(largest(runtime(official.outputs_of, path, [moved(call, choose)]), theirs) for _ in range(16))
    error, size = largest(ours, theirs), abs(theirs[0][0]).max()
    if not error <= 3 * noise + 2e-5 * size:
        raise Wrong(f"{error:.2e} from the official runtime, noise {noise:.2e}, values up to {size:.2g}")
    return f"{error:.1e} from the official runtime, noise {noise:.1e}"


def coded_case(promise, runtime, name, module, inputs):
    """A whole model in codes of 8 bits, a scale for each channel of a filter, by XNNPACKQuantizer: within 3 codes of 255 of the official runtime."""
    import torch
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    folder = promise.folder / f"coded-{name}"
    folder.mkdir()
    torch.manual_seed(promise.seed)
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    prepared = prepare_pt2e(torch.export.export(module, inputs, strict=False).module(), quantizer)
    with torch.no_grad():
        for _ in range(3):
            prepared(*[torch.randn_like(t) for t in inputs])
        prepared(*inputs)
    path, call = lowered(convert_pt2e(prepared), inputs, True, folder / "program.pte"), [t.numpy() for t in inputs]
    ours, refusal = ferry_outputs(path, [call], folder)
    if ours is None:
        raise Wrong(f"refused: {refusal}")
    theirs = runtime(official.outputs_of, path, [call])
    error, size = largest(ours, theirs), abs(theirs[0][0]).max()
    if not error <= 3 / 255 * size:
        raise Wrong(f"{error:.2e} from the official runtime, values up to {size:.2g}")
    return f"{error:.1e} from the official runtime, values up to {size:.2g}"


def operator_names():
    """All operators that the official runtime registers; executed in its process."""
    return official.portable_lib._get_operator_names()


def operators_case(promise, runtime):
    """Operators without a kernel in ferry are those of the documentation."""
    known = set(re.findall(r"\w+::\w+(?:\.\w+)?", (common.ROOT / "kernels/kernel_table.cc").read_text()))
    page = (common.ROOT / "docs/delegates.md").read_text().split("| not executed | why |")[1].split("\n\n")[0]
    stated, missing = set(re.findall(r"`(\w+::[\w.]+)`", page)), set(runtime(operator_names)) - known
    if stated != missing:
        raise Wrong(f"not executed and not stated: {sorted(missing - stated)}; stated and executed: {sorted(stated - missing)}")
    return f"{len(missing)} are not executed"


def main():
    promise = common.Promise(__doc__)
    import export_models
    import export_modules
    import export_operators
    runtime = official.Runtime()
    promise.case("operators of the official runtime", operators_case, promise, runtime)
    for name, (module, inputs) in export_operators.operators().items():
        if promise.sample and not name.endswith(OPERATORS):
            continue
        promise.case(f"{name}, portable", module_case, promise, runtime, name.replace(" ", "-"), module, inputs, False)
    for name, (module, inputs) in export_modules.modules().items():
        if promise.sample and name not in SAMPLE:
            continue
        for xnnpack in (False, True):
            promise.case(f"{name}, {'XNNPACK' if xnnpack else 'portable'}", module_case, promise, runtime, name, module, inputs, xnnpack)
    for name, (module, inputs) in {}.items() if promise.sample else export_models.models().items():
        for xnnpack in (False, True):
            kind = "XNNPACK" if xnnpack else "portable"
            promise.case(f"model: {name}, {kind}", module_case, promise, runtime, name.replace(" ", "-"), module, inputs, xnnpack)
    for name, (module, inputs) in export_models.models().items():
        if name in (("resnet",) if promise.sample else ("resnet", "vit", "convnext", "deit")):
            promise.case(f"model in 8 bits: {name}", coded_case, promise, runtime, name, module, inputs)
    for bits, group in ((4, 32), (8, 0)) if promise.sample else ((4, 32), (4, 64), (8, 0), (4, 0)):
        promise.case(f"quantised by torchao: {bits} bits, {f'group {group}' if group else 'row'}", quantised_case, promise, runtime, bits, group)
    runtime.close()
    promise.finish()


if __name__ == "__main__":
    main()
