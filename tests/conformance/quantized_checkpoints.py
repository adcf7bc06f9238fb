"""Quantised checkpoints get the weights that the packages give which wrote them, or are refused by name.

- compressed-tensors: a tiny llama is quantised and compressed by the package, for every scheme; the weights of `--to hf` are bit-equal
  to what the package decompresses. Schemes that docs/quantized_checkpoints.md does not list end with 4 and a name.
- fp8 in blocks: codes and scales packed by this script as the format is published; the weights are codes times scales.
- GPTQ and AWQ: random codes packed as their formats are published (no package that writes them runs here without a GPU); the
  weights are (code - zero point) * scale in f32.
- torchao and bitsandbytes are refused by name.
"""
import json

import numpy

import common
from common import Ferry, Wrong

# name: (arguments of weights, what ferry must do)
SCHEMES = {
    "pack 4 bits, group": (dict(num_bits=4, type="int", strategy="group", group_size=16, symmetric=True), 0),
    "pack 4 bits, group, asymmetric": (dict(num_bits=4, type="int", strategy="group", group_size=32, symmetric=False), 0),
    "pack 4 bits, row": (dict(num_bits=4, type="int", strategy="channel", symmetric=True), 0),
    "pack 8 bits, group": (dict(num_bits=8, type="int", strategy="group", group_size=16, symmetric=True), 0),
    "int 8 bits, row": (dict(num_bits=8, type="int", strategy="channel", symmetric=True), 0),
    "int 8 bits, row, asymmetric": (dict(num_bits=8, type="int", strategy="channel", symmetric=False), 0),
    "int 8 bits, matrix": (dict(num_bits=8, type="int", strategy="tensor", symmetric=True), 0),
    "int 4 bits, group": (dict(num_bits=4, type="int", strategy="group", group_size=32, symmetric=True), 0),
    "fp8, row": (dict(num_bits=8, type="float", strategy="channel", symmetric=True), 0),
    "fp8, matrix": (dict(num_bits=8, type="float", strategy="tensor", symmetric=True), 0),
    "fp8, block": (dict(num_bits=8, type="float", strategy="block", block_structure=[16, 16], symmetric=True), 0),
    "pack 2 bits": (dict(num_bits=2, type="int", strategy="group", group_size=16, symmetric=True), 4),
    "pack 3 bits": (dict(num_bits=3, type="int", strategy="group", group_size=16, symmetric=True), 4),
}
FORMATS = {"pack": "pack-quantized", "int": "int-quantized", "fp8": "float-quantized"}
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def llama_in_bf16(folder, seed):
    import torch
    model = common.tiny_llama(folder, seed).to(torch.bfloat16)
    model.config.dtype = "bfloat16"
    return model


def compressed(promise, name):
    """Quantises, compresses, saves and decompresses by the package."""
    import torch
    import loguru
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, QuantizationScheme, QuantizationStatus, apply_quantization_config
    loguru.logger.disable("compressed_tensors")
    arguments, code = SCHEMES[name]
    folder = promise.folder / name.replace(" ", "-").replace(",", "")
    model = llama_in_bf16(folder / "plain", promise.seed)
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
    apply_quantization_config(model, QuantizationConfig(config_groups={"group_0": scheme}, ignore=["lm_head"]))
    for module in model.modules():
        if getattr(module, "quantization_scheme", None):
            calibrate(module)
            module.quantization_status = QuantizationStatus.FROZEN
    compressor = ModelCompressor.from_pretrained_model(model, FORMATS[name.split()[0].rstrip(",")])
    compressor.compress_model(model)
    state = {k: v.detach().clone().contiguous() for k, v in model.state_dict().items()}
    written = folder / "quantised"
    save_folder(folder / "plain", written, state, None)
    compressor.update_config(str(written))
    compressor.decompress_model(model)
    expected = {k: v.float().numpy() for k, v in model.state_dict().items() if k.endswith("weight") and v.dtype == torch.bfloat16}
    return judged(promise, written, expected, "keep", code, "bits")


def calibrate(module):
    """Scales and zero points from the least and the greatest value, with the strategy of the scheme."""
    from compressed_tensors.quantization.utils import calculate_qparams
    arguments, weight = module.quantization_scheme.weights, module.weight.detach()
    rows, columns = weight.shape
    strategy = str(getattr(arguments.strategy, "value", arguments.strategy))
    if strategy == "group":
        parts, axes = weight.reshape(rows, columns // arguments.group_size, -1), (-1,)
    elif strategy == "block":
        high, wide = arguments.block_structure
        parts, axes = weight.reshape(rows // high, high, columns // wide, wide), (1, 3)
    else:
        parts, axes = weight, (0, 1) if strategy == "tensor" else (1,)
    scale, zero = calculate_qparams(parts.amin(axes), parts.amax(axes), arguments)
    module.weight_scale.data.copy_(scale.reshape(module.weight_scale.shape))
    if getattr(module, "weight_zero_point", None) is not None:
        module.weight_zero_point.data.copy_(zero.reshape(module.weight_zero_point.shape))


def save_folder(source, target, state, quantization):
    """The config of a folder with a quantization_config, beside other tensors."""
    from safetensors.torch import save_file
    target.mkdir(parents=True)
    config = json.loads((source / "config.json").read_text())
    config["dtype"] = "bfloat16"
    if quantization:
        config["quantization_config"] = quantization
    (target / "config.json").write_text(json.dumps(config))
    save_file(state, target / "model.safetensors", metadata={"format": "pt"})


def judged(promise, folder, expected, dtype, code, word):
    """Weights of `--to hf` are bit-equal, or the refusal has a word."""
    from safetensors.torch import load_file
    out = folder.parent / "ours"
    ran = Ferry("convert", folder, "--to", "hf", "--dtype", dtype, "-o", out, "--quiet").ends_with(code)
    if code == 4:
        if word not in ran.err:
            raise Wrong(f"does not name {word}: {ran.why}")
        promise.note("refused by name")
        return ran.why.split(": ", 1)[-1][:100]
    ours = {k: v.float().numpy() for k, v in load_file(next(out.glob("*.safetensors"))).items()}
    wrong = [k for k, v in expected.items() if k not in ours or not numpy.array_equal(ours[k], v)]
    if wrong:
        worst = abs(ours[wrong[0]] - expected[wrong[0]]).max() if wrong[0] in ours else "absent"
        raise Wrong(f"{len(wrong)} of {len(expected)} weights differ, such as {wrong[0]} by {worst}")
    return f"{len(expected)} weights bit-equal"


def linears(model):
    import torch
    return [n for n, m in model.named_modules() if isinstance(m, torch.nn.Linear) and n != "lm_head"]


def fp8_blocks(promise, block):
    """f8_e4m3 with a scale for each block; blocks at the edges are cut off."""
    import torch
    folder = promise.folder / f"fp8-{block}"
    model = llama_in_bf16(folder / "plain", promise.seed)
    state, expected = {k: v.clone() for k, v in model.state_dict().items()}, {}
    for name in linears(model):
        weight = state.pop(f"{name}.weight").float()
        rows, columns = weight.shape
        scale = torch.zeros(-(-rows // block), -(-columns // block))
        codes, values = torch.zeros_like(weight, dtype=torch.float8_e4m3fn), torch.zeros_like(weight)
        for i in range(scale.shape[0]):
            for j in range(scale.shape[1]):
                part = (slice(i * block, (i + 1) * block), slice(j * block, (j + 1) * block))
                scale[i, j] = weight[part].abs().max() / 448
                codes[part] = (weight[part] / scale[i, j]).to(torch.float8_e4m3fn)
                values[part] = codes[part].float() * scale[i, j]
        state[f"{name}.weight"], state[f"{name}.weight_scale_inv"] = codes, scale
        expected[f"{name}.weight"] = values.numpy()
    save_folder(folder / "plain", folder / "quantised", state, dict(
        quant_method="fp8", activation_scheme="dynamic", fmt="e4m3", weight_block_size=[block, block], modules_to_not_convert=["lm_head"]))
    return judged(promise, folder / "quantised", expected, "f32", 0, "")


def packed(values, bits, order=None):
    """Rows of integers, 32 / bits of them in each int32 along the last axis, the first in the lowest bits."""
    each = 32 // bits
    parts = values.reshape(*values.shape[:-1], -1, each).astype("u4")
    out = numpy.zeros(parts.shape[:-1], dtype="u4")
    for place in range(each):
        out |= parts[..., order[place] if order else place] << numpy.uint32(bits * place)
    return out.view("i4")


def integer_layout(promise, method, bits, group, shuffled=False):
    """GPTQ (rows of inputs packed, zero points less one) and AWQ (outputs packed in its order)."""
    import torch
    folder = promise.folder / f"{method}-{bits}-{group}-{shuffled}"
    model = llama_in_bf16(folder / "plain", promise.seed)
    choose = numpy.random.default_rng(promise.seed)
    state, expected = {k: v.clone() for k, v in model.state_dict().items()}, {}
    for name in linears(model):
        outputs, inputs = state.pop(f"{name}.weight").shape
        groups = inputs // group
        codes = choose.integers(0, 2**bits, (inputs, outputs))
        zeros = choose.integers(1, 2**bits, (groups, outputs))
        scales = (choose.random((groups, outputs)) * 0.05 + 0.01).astype("f2")
        of_row = numpy.arange(inputs) // group
        if shuffled:
            of_row = choose.permutation(of_row)
        if method == "awq":
            arrays = dict(qweight=packed(codes, bits, AWQ_ORDER), qzeros=packed(zeros, bits, AWQ_ORDER), scales=scales)
        else:
            stored = zeros - 1 if method == "gptq" else zeros
            arrays = dict(qweight=packed(codes.T.copy(), bits).T.copy(), qzeros=packed(stored, bits), scales=scales, g_idx=of_row.astype("i4"))
        state.update({f"{name}.{k}": torch.from_numpy(v.copy()) for k, v in arrays.items()})
        expected[f"{name}.weight"] = ((codes - zeros[of_row]).astype("f4") * scales[of_row].astype("f4")).T
    if method == "awq":
        config = dict(quant_method="awq", bits=bits, group_size=group, zero_point=True, version="gemm", modules_to_not_convert=None)
    else:
        config = dict(quant_method="gptq", bits=bits, group_size=group, desc_act=shuffled, sym=False, lm_head=False, checkpoint_format=method)
    save_folder(folder / "plain", folder / "quantised", state, config)
    return judged(promise, folder / "quantised", expected, "f32", 0 if bits in (4, 8) else 4, "bits")


def other_method(promise, name, config):
    """A method that is not read: the config decides."""
    folder = promise.folder / name
    model = llama_in_bf16(folder / "plain", promise.seed)
    save_folder(folder / "plain", folder / "quantised", {k: v.clone() for k, v in model.state_dict().items()}, config)
    return judged(promise, folder / "quantised", {}, "keep", 4, name)


def main():
    promise = common.Promise(__doc__)
    for name in SCHEMES:
        promise.case(f"compressed-tensors, {name}", compressed, promise, name)
    for block in (16, 24):
        promise.case(f"fp8, blocks of {block}", fp8_blocks, promise, block)
    for method, bits, group, shuffled in (("gptq", 4, 16, False), ("gptq", 8, 32, False), ("gptq", 4, 16, True), ("gptq_v2", 4, 16, False),
                                          ("gptq_v2", 8, 16, True), ("gptq", 2, 16, False), ("awq", 4, 16, False), ("awq", 4, 32, False)):
        promise.case(f"{method}, {bits} bits, group {group}{', act order' if shuffled else ''}", integer_layout, promise, method, bits, group, shuffled)
    for name, config in (("torchao", dict(quant_method="torchao", quant_type=dict(default={"_type": "Int8WeightOnlyConfig"}))),
                         ("bitsandbytes", dict(quant_method="bitsandbytes", load_in_4bit=True))):
        promise.case(f"refused: {name}", other_method, promise, name, config)
    promise.finish()


if __name__ == "__main__":
    main()
