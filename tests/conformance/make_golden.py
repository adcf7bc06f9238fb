"""Makes the fixture of a family: a tiny random checkpoint of a class of transformers, and what it computes.

    python tests/conformance/make_golden.py olmo OlmoForCausalLM '{"clip_qkv": 0.6}'

Writes testdata/golden/NAME (checkpoint of bf16, golden.safetensors) and testdata/families/NAME (config and keys), from nothing
but the name of the fixture, the class, and what its config shall say beyond the sizes below. The weights are those of the first
seed whose greedy tokens are decided by margins of at least 0.01 (with experts 0.004, and their routers by 0.0006). The outputs
are those of `python -m ferry.reference`; of the long prompt only ids, logits and the greedy tokens are kept. A second run
writes the same. Needs torch and transformers 5.23 (environment.sh).
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile

os.environ.setdefault("HF_HUB_OFFLINE", "1")

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))

import models  # noqa: E402: it imports torch and transformers
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from ferry import reference  # noqa: E402

SIZES = dict(vocab_size=64, hidden_size=24, intermediate_size=36, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=2, pad_token_id=0)
LENGTHS = {"short": 9, "long": 33}
GREEDY = 8
MARGIN, MARGIN_WITH_EXPERTS, LEAST_ROUTER_MARGIN = 0.01, 0.004, 6e-4
SEEDS = 400


def config_of(cls, more):
    """The sizes under the names that the configuration class has for them, and `more`, where null leaves a size out."""
    known = set(cls.config_class().to_dict())
    names = {new: old for new, old in cls.config_class.attribute_map.items() if new in SIZES}
    sizes = {names.get(key, key): value for key, value in SIZES.items() if names.get(key, key) in known}
    return {key: value for key, value in {**sizes, **more}.items() if value is not None or key not in sizes}


def prompts_of(seed):
    noise = torch.Generator().manual_seed(seed)
    return {name: torch.randint(3, SIZES["vocab_size"], (count,), generator=noise).tolist() for name, count in LENGTHS.items()}


def margins(model, prompts):
    """The least distance between the first two logits of a greedy token, and between scores of experts that count."""
    routers = models.Margins(model)
    least = float("inf")
    for prompt in prompts.values():
        ids = list(prompt)
        for _ in range(GREEDY):
            first, second = model(torch.tensor([ids])).logits[0, -1].topk(2).values
            least = min(least, float(first - second))
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return least, routers.least


def decided(cls, config, folder):
    """Saves the first checkpoint whose tokens are decided clearly; returns its prompts."""
    for seed in range(SEEDS):
        models.build(cls, config, seed).to(torch.bfloat16).save_pretrained(folder)
        model, prompts = models.load(cls, folder), prompts_of(seed)
        least, of_routers = margins(model, prompts)
        if least >= (MARGIN if of_routers == float("inf") else MARGIN_WITH_EXPERTS) and of_routers >= LEAST_ROUTER_MARGIN:
            print(f"seed {seed}: margins of {least:.4f}, of routers {of_routers:.5f}")
            return prompts
    sys.exit(f"make_golden.py: no seed below {SEEDS} decides all tokens clearly")


def record(folder, prompts, out):
    out.unlink(missing_ok=True)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write("".join(json.dumps({"tokens": ids, "name": name}) + "\n" for name, ids in prompts.items()))
        file.flush()
        if reference.main([str(folder), "-o", str(out), "--prompts", file.name, "--max-new", str(GREEDY), "--no-f64", "-q"]):
            sys.exit("make_golden.py: there is no reference")
    of_short = re.compile(r"short\.(hidden_states\.\d+|last_layer_prenorm)$")
    kept = {name: tensor for name, tensor in safetensors.torch.load_file(out).items()
            if of_short.match(name) or name.split(".", 1)[1] in ("input_ids", "logits", "greedy_ids")}
    safetensors.torch.save_file(kept, out)
    for path in folder.iterdir():
        path.chmod(0o644)


def list_keys(folder, out):
    out.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "config.json", out)
    with safetensors.safe_open(folder / "model.safetensors", "pt") as file:
        rows = [(key, file.get_slice(key)) for key in sorted(file.keys())]
        text = "".join(f"{key} {part.get_dtype()} {' '.join(map(str, part.get_shape()))}\n" for key, part in rows)
    (out / "tensors.txt").write_text(text)


def make(name, cls, config, testdata):
    golden = testdata / "golden" / name
    golden.mkdir(parents=True, exist_ok=True)
    prompts = decided(cls, config_of(cls, config), golden)
    record(golden, prompts, golden / "golden.safetensors")
    list_keys(golden, testdata / "families" / name)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="of the folders in testdata/golden and testdata/families")
    parser.add_argument("cls", metavar="CLASS", help="class of transformers, as OlmoForCausalLM")
    parser.add_argument("config", nargs="?", default="{}", help="arguments of its configuration class, as JSON; null leaves out")
    parser.add_argument("--testdata", type=pathlib.Path, default=ROOT / "testdata", help="folder to write into")
    words = parser.parse_args()
    make(words.name, getattr(transformers, words.cls), json.loads(words.config), words.testdata)


if __name__ == "__main__":
    main()
