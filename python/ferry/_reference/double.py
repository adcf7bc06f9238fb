"""Twin: a model in f64 whose weights are those of a model in f32, widened one layer at a time.

The twin has its own modules, in f64, with the constants (such as frequencies of RoPE) computed in f64. Its parameters have
shapes only. Before a layer is executed its parameters are made of those of the f32 model, and dropped behind it. Large
tables and heads outside of layers are never widened as a whole: rows are looked up and then widened, and products are
computed for some rows of the matrix at a time. So the twin takes the memory of one layer.
"""
import contextlib
import copy

import torch

from .source import plain

LARGE = 1 << 22  # elements of a matrix outside of layers from which on it is read in parts


@contextlib.contextmanager
def in_f64():
    """Code that asks for f32 gets f64."""
    kept, default = (torch.float32, torch.float), torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    linear, embedding = torch.nn.functional.linear, torch.nn.functional.embedding
    torch.nn.functional.linear, torch.nn.functional.embedding = in_parts(linear), by_rows(embedding)
    try:
        yield
    finally:
        torch.nn.functional.linear, torch.nn.functional.embedding = linear, embedding
        del torch.Tensor.float  # the method of the base class is there again
        torch.float32, torch.float = kept
        torch.set_default_dtype(default)


def in_parts(linear):
    def parts(inputs, weight, bias=None):
        source = getattr(weight, "ferry_source", None)
        if source is None:
            return linear(inputs, weight, bias)
        rows = max(1, LARGE // source.shape[1])
        out = torch.cat([linear(inputs, part.double()) for part in source.split(rows)], dim=-1)
        return out if bias is None else out + bias
    return parts


def by_rows(embedding):
    def rows(ids, weight, *rest, **options):
        source = getattr(weight, "ferry_source", None)
        if source is None:
            return embedding(ids, weight, *rest, **options)
        return embedding(ids, source, *rest, **options).double()
    return rows


@contextlib.contextmanager
def shapes_only():
    """Modules that are made get parameters without values."""
    register = torch.nn.Module.register_parameter

    def registered(module, name, parameter):
        register(module, name, parameter)
        if parameter is not None:
            module._parameters[name] = empty(parameter)

    torch.nn.Module.register_parameter = registered
    try:
        yield
    finally:
        torch.nn.Module.register_parameter = register


def empty(parameter):
    return torch.nn.Parameter(torch.empty(parameter.shape, dtype=torch.float64, device="meta"), requires_grad=False)


class Twin:
    """twin(**inputs) computes in f64; `most_bytes` is what the largest layer takes."""

    def __init__(self, model):
        from transformers.initialization import no_init_weights
        with in_f64(), shapes_only(), no_init_weights():
            self.twin = type(model)(copy.deepcopy(model.config))
        plain(self.twin)
        self.sources = dict(model.named_parameters(remove_duplicate=False))
        self.copy_buffers(model)
        self.most_bytes = 0
        layers = set()
        for name, module in outermost_lists(self.twin):
            for i, layer in enumerate(module):
                self.lend(f"{name}.{i}", layer)
                layers.update(layer.modules())
        for name, module in self.twin.named_modules():
            if module not in layers:
                self.keep(name, module)

    def copy_buffers(self, model):
        stored = model.state_dict().keys()
        for name, buffer in model.named_buffers():
            if name in stored:
                owner, _, leaf = name.rpartition(".")
                self.twin.get_submodule(owner)._buffers[leaf] = buffer.double() if buffer.is_floating_point() else buffer

    def owned(self, name, module):
        for leaf in module._parameters:
            path = f"{name}.{leaf}" if name else leaf
            if module._parameters[leaf] is not None:
                yield leaf, self.sources[path]

    def lend(self, name, layer):
        """Widens the parameters of a layer before it is executed, and drops them behind it."""
        owners = [(f"{name}.{inner}" if inner else name, module) for inner, module in layer.named_modules()]
        self.most_bytes = max(self.most_bytes, 8 * sum(source.numel() for path, module in owners
                                                       for _, source in self.owned(path, module)))

        def before(*_):
            for path, module in owners:
                for leaf, source in self.owned(path, module):
                    module._parameters[leaf] = torch.nn.Parameter(source.double(), requires_grad=False)

        def behind(*_):
            for path, module in owners:
                for leaf, source in self.owned(path, module):
                    module._parameters[leaf] = empty(source)

        layer.register_forward_pre_hook(before)
        layer.register_forward_hook(behind)

    def keep(self, name, module):
        """Parameters outside of layers: small ones are widened for good, matrices are read in parts."""
        for leaf, source in self.owned(name, module):
            by_parts = isinstance(module, (torch.nn.Linear, torch.nn.Embedding)) and leaf == "weight"
            if by_parts and source.numel() > LARGE:
                module._parameters[leaf].ferry_source = source
            else:
                module._parameters[leaf] = torch.nn.Parameter(source.double(), requires_grad=False)

    def __call__(self, **inputs):
        inputs = {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}
        with in_f64():
            return self.twin(**inputs)


def outermost_lists(module, prefix=""):
    """Lists of modules that are in no other one, with their names."""
    for name, child in module.named_children():
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(child, torch.nn.ModuleList):
            yield path, child
        else:
            yield from outermost_lists(child, path)
