"""Native packages of ExecuTorch (.ptn), written by its own to_native, in ferry inspect and check.

Drawn modules (constants that are equal, state, dynamic shapes) are lowered; other packages are written by the same serialiser from drawn
graphs with every kind of argument, quantised constants and inner graphs, which the lowering of 1.5.1 makes of few modules. What
`ferry inspect` lists must be what the package's own readers return: methods, inputs, outputs, buffers, operators and constants.
"""
import collections
import random
import zipfile

import common
from common import Ferry, Wrong

DTYPES = {0: "u8", 1: "i8", 2: "i16", 3: "i32", 4: "i64", 5: "f16", 6: "f32", 7: "f64", 11: "bool", 15: "bf16"}


def module(draw):
    """A module, its inputs and its dynamic shapes."""
    import torch

    class Drawn(torch.nn.Module):
        def __init__(self, width, layers, state, equal):
            super().__init__()
            self.layers = torch.nn.ModuleList(torch.nn.Linear(width, width, bias=i % 2 == 0) for i in range(layers))
            self.state = state
            if state:
                self.register_buffer("cache", torch.zeros(width), persistent=False)
                self.register_buffer("steps", torch.ones(3))
            for i in range(equal):
                self.register_buffer(f"equal{i}", torch.full((width,), 0.5))
            self.equal = equal

        def forward(self, x):
            for layer in self.layers:
                x = torch.relu(layer(x))
            for i in range(self.equal):
                x = x * getattr(self, f"equal{i}")
            if self.state:
                self.cache.add_(x.sum(0))
                self.steps.add_(1)
                x = x + self.cache + self.steps.sum()
            return x

    width, dynamic = draw.choice((4, 6, 8)), draw.random() < 0.5
    made = Drawn(width, draw.randint(1, 3), draw.random() < 0.6, draw.randint(0, 3))
    shapes = ({0: torch.export.Dim("rows", min=2, max=9)},) if dynamic else None
    return made, (torch.randn(3, width),), shapes


def package(draw, path):
    import torch
    from executorch.exir.native import to_native
    torch.manual_seed(draw.randrange(1 << 30))
    made, inputs, shapes = module(draw)
    to_native(torch.export.export(made, inputs, dynamic_shapes=shapes)).save(str(path))


def written(draw, path):
    """A package of one to three methods, whose graphs compute nothing sensible."""
    import torch
    from executorch.backends.native.serialization import schema as s
    from executorch.backends.native.serialization.graph_serialize import _compile_to_bytes
    from executorch.exir._serialize._ptn import write_ptn

    constants = {"w": torch.randn(4, 8), "codes": torch.randint(0, 255, (4, 4), dtype=torch.uint8), "scales": torch.randn(4, 2),
                 "zeros": torch.zeros(4, 2, dtype=torch.int8), "blocks": torch.randint(0, 255, (36,), dtype=torch.uint8),
                 "same": torch.ones(3), "too": torch.ones(3)}
    meta = lambda dtype, *sizes, quant=None: s.TensorMeta(dtype, [s.Dim(*d) if isinstance(d, tuple) else s.Dim(d, d) for d in sizes], quant=quant)
    f32, u8 = s.ScalarType.FLOAT, s.ScalarType.BYTE
    group = s.QuantSpec(s.AffineGroup("scales", f32, draw.choice((-8, 0)), draw.choice((7, 15)), 4, "zeros", s.ScalarType.CHAR))
    refs = [s.NamedTensorRef("c0", "w", meta(f32, 4, 8), s.InputKind.PARAMETER),
            s.NamedTensorRef("c1", "codes", meta(u8, 4, 8, quant=group)),
            s.NamedTensorRef("c2", "blocks", meta(u8, 2, 32, quant=s.QuantSpec(s.PackedQuant("gguf:q4_0")))),
            s.NamedTensorRef("c3", "same", meta(f32, 3), mutated=draw.random() < 0.5), s.NamedTensorRef("c4", "too", meta(f32, 3))]
    argument = lambda value: s.NamedArgument(s.Argument(value))

    def arguments(names):
        kinds = [s.TensorArg(draw.choice(names)), s.NoneArg(), s.IntArg(3), s.FloatArg(0.5), s.BoolArg(True), s.StringArg("none"),
                 s.ScalarTypeArg(f32), s.IntListArg([1, -1], ["", "n"] if "n" in names else None), s.FloatListArg([1.0, 2.0]),
                 s.BoolListArg([True]), s.TensorListArg([draw.choice(names)]),
                 s.OptionalTensorListArg(["", draw.choice(names)], [False, True])]
        return [argument(a) for a in draw.sample(kinds, draw.randint(1, 6))]

    def inner():
        body = [s.Node("p", s.OpKind.PLACEHOLDER), s.Node("q", s.OpKind.CALL_FUNCTION, "torch.ops.aten.neg.default", [argument(s.TensorArg("p"))], [s.Output("q")])]
        return s.GraphArg("body", s.Graph(body, ["p"], ["q"], [s.TensorValue(n, meta(f32, 2)) for n in "pq"]))

    def method(name):
        names = ["x", "state"] + [r.name for r in refs]
        nodes = [s.Node(n, s.OpKind.PLACEHOLDER) for n in names]
        nodes.append(s.Node("n", s.OpKind.CALL_FUNCTION, "torch.ops.aten.sym_size.int", [argument(s.TensorArg("x"))], [s.Output("n", kind=s.OutputValueKind.INT)]))
        names.append("n")
        for i in range(draw.randint(1, 6)):
            outputs = [s.Output("", kind=s.OutputValueKind.TENSOR_LIST, names=[f"v{i}a", f"v{i}b"])] if draw.random() < 0.3 else [s.Output(f"v{i}", draw.choice((None, "x")))]
            given = arguments(names) + ([argument(inner())] if draw.random() < 0.4 else [])
            nodes.append(s.Node(f"node{i}", s.OpKind.CALL_FUNCTION, f"torch.ops.aten.{draw.choice(('add', 'mul', 'cat'))}.out", given, outputs))
            names += [n for o in outputs for n in (o.names or [o.name])]
        values = [s.TensorValue(n, meta(f32, draw.choice((2, (1, 9), (0, -1))), 4)) for n in names]
        graph = s.Graph(nodes, ["x"], ["x", names[-1], "state"], values)
        return s.Method(name, graph, refs, [s.OutputSpec("state", s.OutputKind.BUFFER_MUTATION, "model.state")], [s.MutableBufferSpec("state", "model.state")])

    blob = _compile_to_bytes(s.Program([method(n) for n in ("forward", "prefill", "other")[:draw.randint(1, 3)]]))
    mutable = frozenset(r.data_key for r in refs if r.mutated)
    write_ptn(str(path), blob, constants, mutable)


def kind(meta):
    """The dtype, or what the codes are."""
    if meta.quant is None:
        return DTYPES[int(meta.dtype)]
    scheme = meta.quant.scheme
    if hasattr(scheme, "codec"):
        return scheme.codec
    return f"{(scheme.quant_max - scheme.quant_min).bit_length()} bits in groups of {scheme.group_size}"


def expected(path):
    """What the package's own readers say, in the form of `ferry inspect`."""
    from executorch.backends.native.serialization.graph_serialize import deserialize_program, validate_program
    from executorch.exir._serialize._ptn import read_ptn
    graph, constants = read_ptn(str(path))
    program = deserialize_program(graph)
    validate_program(program, set(constants))
    methods = {}
    for method in program.methods:
        metas = {v.name: v.meta for v in method.graph.tensor_values}
        value = lambda name, meta: (name, kind(meta), [d.max for d in meta.sizes or []])
        counts = collections.Counter()

        def count(body):
            for node in body.nodes:
                counts[node.target] += int(node.op_kind) == 0
                for argument in node.inputs or []:
                    if hasattr(argument.arg.value, "graph"):
                        count(argument.arg.value.graph)
        count(method.graph)
        written = {s.name for s in method.output_specs or [] if int(s.kind) != 0}
        methods[method.name] = {
            "inputs": [value(n, metas[n]) for n in method.graph.inputs or []],
            "outputs": [value(n, metas[n]) for n in method.graph.outputs or [] if n not in written],
            "buffers": sorted([value(b.fqn, metas[b.name]) for b in method.mutable_buffers or []] +
                              [value(c.data_key, c.meta) for c in method.constants or [] if c.mutated]),
            "operators": {name: n for name, n in counts.items() if n and name},
        }
    tensors = {name: list(tensor.shape) for name, tensor in constants.items()}
    return methods, tensors


def listed(path):
    result = Ferry("inspect", path, "--json").ends_with(0).result
    value = lambda v, kind: (v.get("name", ""), v[kind], v["shape"])
    methods = {m["name"]: {"inputs": [value(v, "type") for v in m["inputs"]], "outputs": [value(v, "type") for v in m["outputs"]],
                           "buffers": sorted(value(v, "dtype") for v in m["buffers"]), "operators": m["operators"]}
               for m in result["programs"][0]["methods"]}
    return methods, {t["name"]: t["shape"] for t in result["tensors"]}


def check(draw, make, folder):
    path = folder / "drawn.ptn"
    make(draw, path)
    wanted, got = expected(path), listed(path)
    if wanted != got:
        raise Wrong(f"expected {wanted}, inspect has {got}")
    Ferry("check", path).ends_with(0)
    # A changed value is found by check, because zip files have checksums.
    with zipfile.ZipFile(path) as file:
        data = file.getinfo("program.safetensors")
    content = bytearray(path.read_bytes())
    content[data.header_offset + 30 + len(data.filename) + len(data.extra) + data.file_size - 1] ^= 1
    damaged = folder / "damaged.ptn"
    damaged.write_bytes(content)
    Ferry("check", damaged).ends_with(1, 3)


def drawn(promise, make, number):
    folder = promise.folder / f"{make.__name__} {number}"
    folder.mkdir()
    return check(random.Random(f"{promise.seed} {number}"), make, folder)


def main():
    promise = common.Promise(__doc__)
    for number in range(3 if promise.sample else 20):
        promise.case(f"lowered {number}", drawn, promise, package, number)
        promise.case(f"written {number}", drawn, promise, written, number)
    promise.finish()


if __name__ == "__main__":
    main()
