"""Makes the fixtures of BitNet with ternary matrices and rounded inputs.

    python tests/conformance/make_ternary.py

Reads testdata/golden/bitnet, which make_golden.py made, and writes testdata/golden/bitnet_MODE: the same weights as each class of
matrices of transformers stores them (`packed`: BitLinear; `offline` and `online`: AutoBitLinear), and what it computes in f32.
Needs torch, transformers 5.23 and accelerate (environment.sh).
"""
import json
import os
import shutil

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # the matrices are compiled where they are first used

import make_golden  # noqa: E402: it imports torch and transformers
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from transformers.integrations import bitnet  # noqa: E402

MODES = {"packed": {"linear_class": "bitlinear"}, "offline": {"linear_class": "autobitlinear", "quantization_mode": "offline"},
         "online": {"linear_class": "autobitlinear", "quantization_mode": "online"}}


def stored(weights, mode):
    """The tensors of the checkpoint; scales of `packed` divide, those of `offline` multiply."""
    out = {}
    for name, value in weights.items():
        if mode == "online" or value.dim() != 2 or ".layers." not in name:
            out[name] = value.clone()
            continue
        scale = 1.0 / value.float().abs().mean().clamp(min=1e-5)
        out[name] = bitnet.pack_weights((value.float() * scale).round().clamp(-1, 1))
        out[f"{name}_scale"] = (scale if mode == "packed" else 1 / scale).reshape(1).to(torch.bfloat16)
    return out


def make(mode, testdata):
    plain, folder = testdata / "golden" / "bitnet", testdata / "golden" / f"bitnet_{mode}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    config = json.loads((plain / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitnet", "modules_to_not_convert": None, **MODES[mode]}
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    weights = stored(safetensors.torch.load_file(plain / "model.safetensors"), mode)
    safetensors.torch.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    golden = safetensors.torch.load_file(plain / "golden.safetensors")
    prompts = {name.split(".")[0]: ids.tolist() for name, ids in golden.items() if name.endswith("input_ids")}
    make_golden.record(folder, {name: torch.tensor(ids).reshape(-1).tolist() for name, ids in prompts.items()},
                       folder / "golden.safetensors")


if __name__ == "__main__":
    assert transformers.__version__.startswith("5.23")
    for mode in MODES:
        make(mode, make_golden.ROOT / "testdata")
