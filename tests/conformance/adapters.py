"""LoRA and DoRA adapters of peft, merged by `ferry convert --lora` as peft merges them, or refused by name.

Random adapters of random models: ranks and alphas of modules, rsLoRA, embeddings, saved modules, GPT-2's transposed layers. The
merged weights (`--to hf`) are those of merge_and_unload() within 1e-6 of the largest value of a weight. What cannot be merged
ends with exit code 4 and a line that names it.
"""
import random

import numpy

import common
from common import Ferry, Wrong

MODULES = {
    "llama": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "qwen2": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "gemma2": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "phi3": ["qkv_proj", "o_proj", "gate_up_proj", "down_proj"],
    "gpt2": ["c_attn", "c_proj", "c_fc"],
}
REFUSED = {
    "pissa": dict(init_lora_weights="pissa"),
    "bias": dict(bias="lora_only"),
    "target_parameters": dict(target_modules=[], target_parameters=["self_attn.q_proj.weight"]),
}


def base_model(family, folder, seed, tied):
    """A tiny random model of a family, saved as Hugging Face folder."""
    import transformers
    common_keys = dict(vocab_size=80, bos_token_id=1, eos_token_id=2, pad_token_id=0, tie_word_embeddings=tied)
    if family == "gpt2":
        config = transformers.GPT2Config(n_embd=32, n_head=4, n_layer=3, n_positions=64, **common_keys)
    else:
        config = transformers.AutoConfig.for_model(
            family, hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
            head_dim=8, max_position_embeddings=64, **common_keys)
    return common.save_tiny(transformers.AutoModelForCausalLM.from_config(config), folder, 0.3, seed)


def random_config(choose, family, tied):
    """Keyword arguments of a LoraConfig."""
    names = choose.sample(MODULES[family], choose.randint(1, len(MODULES[family])))
    config = dict(r=choose.choice((1, 2, 4, 7)), lora_alpha=choose.choice((1, 4, 16, 5)), use_rslora=choose.random() < 0.4,
                  use_dora=choose.random() < 0.4,
                  target_modules=names, rank_pattern={}, alpha_pattern={}, fan_in_fan_out=family == "gpt2")
    layers = "h" if family == "gpt2" else "layers"
    for pattern in ("rank_pattern", "alpha_pattern"):
        for name in names:
            if choose.random() < 0.4:
                layer = choose.choice((None, 0, 1, 2))
                key = name if layer is None else f"{layers}.{layer}.{inside(family, name)}"
                if choose.random() < 0.5:  # a regular expression, for what it names or for more
                    key = choose.choice((f".*{name[1:]}", f"({key}|nothing)", f"^.*{key}", rf"{layers}\.[01]\.\w+\.{name}",
                                         rf"\d+\..*\.{name[:-1]}."))
                config[pattern][key] = choose.randint(1, 8)
        # The first pattern that matches counts, and peft sorts them when it saves.
        config[pattern] = dict(sorted(config[pattern].items()))
    if not tied and choose.random() < 0.3:
        config["modules_to_save"] = ["lm_head"]
    if choose.random() < 0.2:
        config["layers_to_transform"] = choose.sample((0, 1, 2), choose.randint(1, 2))
    return config


def inside(family, name):
    if family == "gpt2":
        return {"c_attn": "attn.c_attn", "c_proj": "mlp.c_proj", "c_fc": "mlp.c_fc"}[name]
    return ("self_attn." if name in ("q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj") else "mlp.") + name


def adapter(folder, model_folder, config, seed):
    """Saves a random adapter; returns the model with it."""
    import peft
    import torch
    model = peft.get_peft_model(common.load(model_folder), peft.LoraConfig(task_type="CAUSAL_LM", **config))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "lora_" in name or "modules_to_save" in name:
                weight.copy_(0.3 * torch.randn(weight.shape, generator=generator))
    model.save_pretrained(folder)
    return model


def merged(promise, number):
    """A random adapter of a random model, merged by both."""
    from safetensors.numpy import load_file
    choose = random.Random(f"{promise.seed} {number}")
    family, tied = choose.choice(list(MODULES)), choose.random() < 0.4
    folder = promise.folder / str(number)
    base_model(family, folder / "base", number, tied)
    config = random_config(choose, family, tied)
    expected = adapter(folder / "adapter", folder / "base", config, number).merge_and_unload().state_dict()
    ran = Ferry("convert", folder / "base", "--lora", folder / "adapter", "--to", "hf", "--dtype", "f32", "-o", folder / "ours", "--quiet")
    ran.ends_with(0)
    worst, ours = 0.0, load_file(next((folder / "ours").glob("*.safetensors")))
    for name, value in ours.items():
        want = expected[name].float().numpy()
        worst = max(worst, float(abs(value.astype("f8") - want).max() / max(1e-9, abs(want).max())))
    if not worst <= 1e-6:
        raise Wrong(f"{family} {config}: weights differ by {worst:.1e} of their largest value")
    compared(folder, ours, expected, numpy)
    return f"{family}, {len(config['rank_pattern'])} ranks of their own, {worst:.1e}"


def compared(folder, ours, expected, numpy):
    """The adapter changed something, and nothing of the model is missing."""
    from safetensors.numpy import load_file
    before = load_file(next((folder / "base").glob("*.safetensors")))
    if set(ours) != set(before):
        raise Wrong(f"other tensors: {sorted(set(ours) ^ set(before))[:3]}")
    if all(numpy.array_equal(ours[name], before[name]) for name in ours):
        raise Wrong("the adapter changed nothing")


def merged_or_refused(promise, name, family, tied, config):
    """Adapters of embeddings and heads: as peft saves them, merged (0) or refused by name (4), never bad input."""
    folder = promise.folder / name.replace(" ", "-")
    base_model(family, folder / "base", 7, tied)
    expected = adapter(folder / "adapter", folder / "base", config, 7).merge_and_unload().state_dict()
    ran = Ferry("convert", folder / "base", "--lora", folder / "adapter", "--to", "hf", "--dtype", "f32", "-o", folder / "ours", "--quiet")
    ran.ends_with(0, 4)
    if ran.code == 4:
        promise.note("refused by name")
        return ran.why
    from safetensors.numpy import load_file
    ours = load_file(next((folder / "ours").glob("*.safetensors")))
    for key, want in expected.items():
        value, want = ours[key if key in ours else "model.embed_tokens.weight"], want.float().numpy()
        if not numpy.allclose(value, want, rtol=0, atol=1e-6 * abs(want).max()):
            raise Wrong(f"{key} differs by {abs(value - want).max():.1e}")
    return "merged"


def refused(promise, name, config):
    folder = promise.folder / f"refused-{name}"
    base_model("llama", folder / "base", 3, False)
    adapter(folder / "adapter", folder / "base", dict(dict(r=2, target_modules=["q_proj", "v_proj"]), **config), 3)
    ran = Ferry("convert", folder / "base", "--lora", folder / "adapter", "-o", folder / "ours", "--quiet").ends_with(4)
    if name not in ran.err:
        raise Wrong(f"does not name {name}: {ran.why}")
    promise.note("refused by name")


def main():
    promise = common.Promise(__doc__)
    for number in range(5 if promise.sample else 24):
        promise.case(f"random adapter {number}", merged, promise, number)
    projections = ["q_proj", "v_proj"]
    for name, tied, config in (
            ("embedding", False, dict(r=2, target_modules=[*projections, "embed_tokens"])),
            ("embedding of a tied model", True, dict(r=2, target_modules=[*projections, "embed_tokens"])),
            ("embedding and tied head", True, dict(r=2, target_modules=[*projections, "embed_tokens"], ensure_weight_tying=True)),
            ("embedding with magnitudes", False, dict(r=2, use_dora=True, target_modules=[*projections, "embed_tokens"])),
            ("head", False, dict(r=2, target_modules=[*projections, "lm_head"])),
            ("head of a tied model", True, dict(r=2, target_modules=[*projections, "lm_head"])),
            ("saved head of a tied model", True, dict(r=2, target_modules=projections, modules_to_save=["lm_head"])),
            ("saved embedding", False, dict(r=2, target_modules=projections, modules_to_save=["embed_tokens"])),
            ("saved embedding and head", False, dict(r=2, target_modules=projections, modules_to_save=["embed_tokens", "lm_head"])),
            ("saved norms, by the end of their names", False, dict(r=2, target_modules=projections, modules_to_save=["norm"])),
            ("saved norms of a tied model", True, dict(r=2, target_modules=projections, modules_to_save=["model.norm", "input_layernorm"])),
            ("saved projection and block", False, dict(r=2, target_modules=projections, modules_to_save=["k_proj", "mlp"]))):
        promise.case(name, merged_or_refused, promise, name, "llama", tied, config)
    for name, config in REFUSED.items():
        promise.case(f"refused: {name}", refused, promise, name, config)
    promise.finish()


if __name__ == "__main__":
    main()
