"""References of `python -m ferry.reference`, which `ferry verify` takes: one command for every family.

Random tiny models of every family (other_families.py), the vision-language checkpoints of testdata and, without --sample, the real
model. The command runs in a process of its own, as a user starts it. `ferry verify --checkpoint --reference` must be at parity,
with the reference of f32 and f64 logits, hidden states, caches and greedy tokens. A reference of another model must be refused,
or be no parity.
"""
import json
import os
import subprocess
import sys

import common
from common import Wrong

SAMPLE = ("llama", "qwen3", "gemma3", "gpt2", "granitemoehybrid", "qwen3_next", "mixtral", "deepseek_v3", "phi3", "cohere2", "opt",
          "encoder")
# A router that is decided by less sends a token through other experts in another implementation.
LEAST_MARGIN = 1e-4


def make(model, golden, *words):
    """Runs the command."""
    environment = dict(os.environ, PYTHONPATH=str(common.ROOT / "python"))
    done = subprocess.run([sys.executable, "-m", "ferry.reference", str(model), "-o", str(golden), *map(str, words)],
                          capture_output=True, text=True, env=environment)
    if done.returncode:
        raise Wrong(f"ferry.reference exits {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
    return done.stderr.strip().splitlines()[-1]


def draw_model(family, folder, seed):
    """A random checkpoint of the family whose experts are decided clearly by the prompts. -> the prompts"""
    import draw
    import models
    import other_families
    import torch
    import transformers
    for attempt in range(20):
        r = draw.Draw(f"reference/{seed}/{family}/{attempt}")
        try:
            name, arguments = other_families.FAMILIES[family](r)
            model = models.build(getattr(transformers, name), arguments, seed + attempt)
            # transformers cannot generate with a model that has recurrent layers alone.
            with torch.no_grad():
                model(torch.tensor([[3, 4]]), use_cache=True)
        except (ValueError, TypeError, ZeroDivisionError):
            continue
        text = model.config.get_text_config()
        limit = min(getattr(text, "max_position_embeddings", 64) or 64, 64)
        prompts = [[r.randrange(3, text.vocab_size - 8) for _ in range(n)] for n in (5, min(24, limit - 12))]
        margins = models.Margins(model)
        margins.least = float("inf")
        for prompt in prompts:
            models.outputs(model, prompt)
        if margins.least < LEAST_MARGIN:
            continue
        model.save_pretrained(folder)
        return prompts
    raise Wrong("no case was drawn")


def prove(folder, checkpoint, golden, *options):
    bundle = folder / "bundle"
    common.convert(checkpoint, bundle, "--dtype", "f32", "--overwrite", *options)
    made = common.verify(bundle, "--checkpoint", checkpoint, "--reference", golden)
    if made.code:
        raise Wrong(f"verify exits {made.code}: {made.why if made.code > 1 else common.first_difference(made.result)}")


def family(promise, name):
    folder = promise.folder / name
    folder.mkdir()
    prompts = draw_model(name, folder / "checkpoint", promise.seed)
    rows = folder / "prompts.jsonl"
    rows.write_text("".join(json.dumps({"tokens": prompt}) + "\n" for prompt in prompts))
    options = ["--program", "encoder"] if name == "encoder" else []
    said = make(folder / "checkpoint", folder / "golden.safetensors", "--prompts", rows, "--max-new", 8, *options)
    prove(folder, folder / "checkpoint", folder / "golden.safetensors", "--context-length", "48", *options)
    return said.split(": ", 2)[-1]


def vision(promise, name):
    folder = promise.folder / f"vision-{name}"
    folder.mkdir()
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    media = {"smolvlm": "smolvlm", "internvl3_hf": "internvl"}[name]
    for source in (common.TESTDATA / "media" / media, common.TESTDATA / "vision" / name):
        for path in source.iterdir():
            (checkpoint / path.name).write_bytes(path.read_bytes())
    said = make(checkpoint, folder / "golden.safetensors", "--image", common.TESTDATA / "media/images/alpha.png",
                "--max-new", 8)
    prove(folder, checkpoint, folder / "golden.safetensors")
    return said.split(": ", 2)[-1]


def real(promise):
    import smollm2
    folder = promise.folder / "real"
    folder.mkdir()
    checkpoint = smollm2.folder()
    rows = folder / "prompts.txt"
    rows.write_text("The capital of France is\nOnce upon a time there was a small ferry\n")
    said = make(checkpoint, folder / "golden.safetensors", "--prompts", rows)
    prove(folder, checkpoint, folder / "golden.safetensors")
    return said.split(": ", 2)[-1]


def another(promise):
    """The reference of one model does not prove another one."""
    folder = promise.folder / "another"
    folder.mkdir()
    prompts = draw_model("llama", folder / "one", promise.seed)
    import transformers
    model = transformers.AutoModelForCausalLM.from_pretrained(folder / "one")
    model.model.layers[-1].mlp.down_proj.weight.data[0] *= 1.01
    model.save_pretrained(folder / "other")
    rows = folder / "prompts.jsonl"
    rows.write_text("".join(json.dumps({"tokens": prompt}) + "\n" for prompt in prompts))
    make(folder / "one", folder / "golden.safetensors", "--prompts", rows, "--max-new", 4)
    bundle = folder / "bundle"
    common.convert(folder / "other", bundle, "--dtype", "f32")
    common.verify(bundle, "--reference", folder / "golden.safetensors").ends_with(1)


def main():
    promise = common.Promise(__doc__)
    import other_families
    for name in SAMPLE if promise.sample else other_families.FAMILIES:
        promise.case(name, family, promise, name)
    for name in ("smolvlm", "internvl3_hf"):
        promise.case(f"vision: {name}", vision, promise, name)
    promise.case("of another model", another, promise)
    if not promise.sample:
        promise.case("real model", real, promise)
    promise.finish()


if __name__ == "__main__":
    main()
