"""Wrong bundles of a real model are found, and the layer is named: SmolLM2-135M-Instruct with one change.

Each mutation changes one matrix, row, element or norm of the checkpoint, or one code, scale or bit of a bundle whose digests
are made right again. There are three judges:

- bundle: the bundle is wrong, checkpoint and reference are right. `verify --checkpoint` names the weight.
- conversion: bundle and checkpoint are wrong alike, as if ferry read the checkpoint wrongly; the reference tells.
- outputs: `verify --reference` alone.

The last two see what outputs show. They must find a change and its layer where transformers, given the same change, moves the
output of that layer by more than 30 times its own noise in f32, at some position.
"""
import json
import random

import common
import edit_bundle
from common import Wrong, convert, copy_folder, edit_tensor, first_difference, verify

PRECISIONS = {
    "f32": ["--dtype", "f32"],
    "bf16": ["--dtype", "bf16"],
    "f16": ["--dtype", "f16"],
    "8da4w": ["--quantize", "8da4w-g32", "--quantize-embedding", "8"],
    "8da8w": ["--quantize", "8da8w", "--quantize-embedding", "8"],
    "int8": ["--quantize", "int8", "--quantize-embedding", "8"],
}
MATRICES = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
NORMS = ("input_layernorm", "post_attention_layernorm")


class Mutation:
    """One change of one tensor of the checkpoint; apply() works on f32 arrays."""

    def __init__(self, layer, module, text, apply):
        self.layer, self.key, self.text, self.apply = layer, f"model.layers.{layer}.{module}.weight", text, apply

    def __str__(self):
        return f"layer {self.layer} {self.key.split('.', 3)[3]}: {self.text}"


def row_times(layer, module, row, factor):
    def apply(values):
        values[row] *= factor
    return Mutation(layer, module, f"row {row} times {factor:.4g}", apply)


def bit(layer, module, index, number):
    def apply(values):
        values.reshape(-1).view("<u4")[index] ^= 1 << number
    return Mutation(layer, module, f"bit {number} of element {index}", apply)


def any_mutation(choose, layers, shapes):
    """A random one."""
    layer, kind = choose.randrange(layers), choose.choice(("row", "row", "tensor", "bit", "rows", "norm"))
    if kind == "norm":
        module, element, factor = choose.choice(NORMS), choose.randrange(576), choose.choice((0.5, 0.9, 1.1, 2.0))

        def apply(values):
            values[element] *= factor
        return Mutation(layer, module, f"element {element} times {factor}", apply)
    module = choose.choice(MATRICES)
    rows, columns = shapes[module]
    first, second = choose.sample(range(rows), 2)
    if kind == "row":
        return row_times(layer, module, first, choose.choice((0.5, 0.95, 1.01, 1.1)))
    if kind == "bit":
        return bit(layer, module, choose.randrange(rows * columns), choose.randint(15, 24))
    if kind == "tensor":
        factor = choose.choice((0.9, 0.99, 1.02))

        def apply(values):
            values *= factor
        return Mutation(layer, module, f"times {factor}", apply)

    def apply(values):
        values[[first, second]] = values[[second, first]]
    return Mutation(layer, module, f"rows {first} and {second} exchanged", apply)


class Judge:
    """The right model, its golden, and what a mutation does to it in transformers."""

    def __init__(self, promise):
        import smollm2
        self.promise, self.source = promise, smollm2.folder()
        self.model = common.load(self.source)
        self.ids = smollm2.prompts(smollm2.tokenizer())["plain"]
        self.golden = common.reference(self.model, {"plain": self.ids}, promise.folder / "golden.safetensors", greedy=8)
        self.states = self.hidden(self.model)
        double = common.load(self.source).double()
        self.noise = [self.by_position(a, b) for a, b in zip(self.states, self.hidden(double))]
        self.shapes = {m: tuple(self.model.get_parameter(f"model.layers.0.{m}.weight").shape) for m in MATRICES}

    def hidden(self, model):
        import torch
        with torch.no_grad():
            return [state[0].double() for state in model(torch.tensor([self.ids]), output_hidden_states=True).hidden_states]

    @staticmethod
    def by_position(ours, theirs):
        return (ours - theirs).pow(2).mean(-1).sqrt()

    def shows(self, mutation):
        """Times the noise that the output of the mutated layer moves, at the position where that is most."""
        import torch
        weight = self.model.get_parameter(mutation.key)
        before = weight.detach().clone()
        with torch.no_grad():
            mutation.apply(weight.numpy())
        moved = self.by_position(self.hidden(self.model)[mutation.layer + 1], self.states[mutation.layer + 1])
        with torch.no_grad():
            weight.copy_(before)
        return (moved / self.noise[mutation.layer + 1]).max().item()

    def checkpoint(self, mutation):
        """A copy of the checkpoint with the change."""
        folder = copy_folder(self.source, self.promise.folder / "mutated")
        edit_tensor(folder / "model.safetensors", mutation.key, lambda values: mutation.apply(values))
        return folder


def judged(judge, mutation, precision, way):
    """Makes the wrong bundle, has it judged, and removes it."""
    import shutil
    folder = judge.checkpoint(mutation)
    bundle = convert(folder, judge.promise.folder / "wrong", *PRECISIONS[precision])
    try:
        if way == "bundle":
            return named_weight(verify(bundle, "--checkpoint", judge.source, "--reference", judge.golden), mutation.key)
        shows = judge.shows(mutation)
        options = ["--checkpoint", folder] if way == "conversion" else []
        return found_at(verify(bundle, *options, "--reference", judge.golden), mutation.layer, shows, way)
    finally:
        shutil.rmtree(folder)
        shutil.rmtree(bundle)


def named_weight(ran, key):
    """Exit code 1, and only the changed weight differs."""
    if ran.code != 1:
        raise Wrong(f"verify exits {ran.code}, expected 1: {ran.why}")
    different = json.loads(ran.out)["result"]["tensors"]["different"]
    if not different or not all(key in line for line in different):
        raise Wrong(f"names {different[:2]}, expected {key}")


def found_at(ran, layer, shows, way):
    """What outputs show is found, at its layer; what they do not show may pass."""
    if ran.code not in (0, 1):
        raise Wrong(f"verify exits {ran.code}: {ran.why}")
    result = json.loads(ran.out)["result"]
    part = result if way == "outputs" else result["f32_path"]
    place = part["first_divergence"]
    if shows > 30 and (ran.code != 1 or not place or place["layer"] != layer):
        raise Wrong(f"moves layer {layer} by {shows:.0f} times the noise, verify exits {ran.code} with {first_difference(result)}")
    return f"{shows:.0f} times the noise, " + (f"found in {place['tensor']}" if place else "passes")


def patched(judge, precision, choose):
    """A bundle with one changed byte of a weight and right digests."""
    import shutil
    bundle = convert(judge.source, judge.promise.folder / "patched", *PRECISIONS[precision])
    try:
        tensor = choose.choice([t for t in edit_bundle.tensors(bundle) if ".layers." in f".{t['name']}" or t["name"].startswith("layers.")])
        content = bytearray(edit_bundle.read(bundle, tensor))
        at = choose.randrange(len(content))
        content[at] ^= 1 << choose.randrange(8)
        edit_bundle.write(bundle, tensor, bytes(content))
        common.Ferry("check", bundle).ends_with(0)
        named_weight(verify(bundle, "--checkpoint", judge.source), tensor["name"])
        return f"byte {at} of {tensor['name']}"
    finally:
        shutil.rmtree(bundle)


def main():
    promise = common.Promise(__doc__)
    judge, choose = Judge(promise), random.Random(promise.seed)
    fixed = [row_times(5, "mlp.gate_proj", 100, 1.01), bit(29, "mlp.down_proj", 77777, 20)]
    for mutation in fixed:
        promise.case(f"f32, outputs: {mutation}", judged, judge, mutation, "f32", "outputs")
    ways = [("f32", "outputs"), ("8da4w", "bundle"), ("f32", "conversion"), ("bf16", "bundle"), ("f32", "bundle"),
            ("f16", "bundle"), ("8da8w", "bundle"), ("int8", "bundle"), ("bf16", "conversion"), ("8da4w", "conversion")]
    for i in range(3 if promise.sample else 40):
        precision, way = ways[i % len(ways)]
        mutation = any_mutation(choose, 30, judge.shapes)
        promise.case(f"{precision}, {way}: {mutation}", judged, judge, mutation, precision, way)
    for i, precision in enumerate(("8da4w",) if promise.sample else 2 * tuple(PRECISIONS)):
        promise.case(f"{precision}, one bit of the bundle, {i}", patched, judge, precision, choose)
    promise.finish()


if __name__ == "__main__":
    main()
