"""Makes the GGUF files of families that Ferry reads and does not write, as llama.cpp's converter does, with its package `gguf`.

    python tests/conformance/make_gguf.py [--testdata DIR]

Writes testdata/gguf/families/{falcon_h1,nemotron_h,nemotron_h_moe}: the file in f32, without a vocabulary, and the logits that
transformers computes in f32 with the model before its multipliers became a part of its weights. A second run writes the same.
"""
import argparse
import os
import pathlib

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import models  # noqa: E402: it imports torch and transformers
import gguf  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LENGTHS = {"short": 9, "long": 33}
LEAST_MARGIN = 6e-4
NAMES = {"embed_tokens": "token_embd", "embeddings": "token_embd", "final_layernorm": "output_norm", "norm_f": "output_norm",
         "lm_head": "output", "input_layernorm": "attn_norm", "pre_ff_layernorm": "ffn_norm", "q_proj": "attn_q", "k_proj": "attn_k",
         "v_proj": "attn_v", "o_proj": "attn_output", "gate_proj": "ffn_gate", "up_proj": "ffn_up", "down_proj": "ffn_down",
         "in_proj": "ssm_in", "out_proj": "ssm_out", "conv1d": "ssm_conv1d", "A_log": "ssm_a", "D": "ssm_d", "dt_bias": "ssm_dt.bias",
         "gate": "ffn_gate_inp", "e_score_correction_bias": "exp_probs_b.bias", "shared_experts.up_proj": "ffn_up_shexp",
         "shared_experts.down_proj": "ffn_down_shexp", "experts.up_proj": "ffn_up_exps.weight",
         "experts.down_proj": "ffn_down_exps.weight", "fc1_latent_proj": "ffn_latent_down", "fc2_latent_proj": "ffn_latent_up"}
NEMOTRON = dict(vocab_size=64, hidden_size=24, num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=64,
                intermediate_size=32, ssm_state_size=6, mamba_num_heads=4, mamba_head_dim=6, n_groups=2, conv_kernel=4,
                n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, moe_shared_expert_intermediate_size=16,
                routed_scaling_factor=1.5, bos_token_id=1, eos_token_id=2, pad_token_id=0)


def name_in_file(key):
    """The name of a tensor, by the longest end of its key that is known."""
    parts = key.removeprefix("model.").removeprefix("layers.").split(".")
    block = f"blk.{parts.pop(0)}." if parts[0].isdigit() else ""
    suffix = f".{parts.pop()}" if parts[-1] in ("weight", "bias") else ""
    known = NAMES.get(".".join(parts[-2:])) or NAMES.get(parts[-1])
    if parts == ["norm"]:  # of a block of Nemotron-H
        known = "attn_norm"
    elif parts[-1] == "norm":
        known = "ssm_norm"
    if known == "ffn_norm":  # the converter gives it no suffix
        suffix = ""
    return block + known + suffix


def as_stored(key, values, groups):
    values = values.float()
    if key.endswith("A_log"):
        values = -torch.exp(values)
    if key.endswith(("A_log", "mixer.D", "mamba.D")):
        return values.reshape(-1, 1)
    if key.endswith(("mixer.norm.weight", "mamba.norm.weight")):
        return values.reshape(groups, -1)
    return values.squeeze(1) if key.endswith("conv1d.weight") else values


def multiplier(key, c):
    """What the converter of Falcon-H1 multiplies a tensor by: a number, or one for each row."""
    size, group = c.mamba_d_ssm, c.mamba_n_groups * c.mamba_d_state
    rows = [torch.full((count,), factor) for count, factor in zip((size, size, group, group, c.mamba_n_heads), c.ssm_multipliers)]
    factors = {"down_proj": c.mlp_multipliers[1], "gate_proj": c.mlp_multipliers[0],
               "k_proj": c.key_multiplier * c.attention_in_multiplier, "q_proj": c.attention_in_multiplier,
               "v_proj": c.attention_in_multiplier, "o_proj": c.attention_out_multiplier, "out_proj": c.ssm_out_multiplier,
               "in_proj": c.ssm_in_multiplier * torch.cat(rows)[:, None], "lm_head": c.lm_head_multiplier,
               "embed_tokens": c.embedding_multiplier}
    return factors.get(key.split(".")[-2], 1.0)


def sizes(w, c, blocks, heads, size, state, kernel, groups):
    w.add_type("model")
    w.add_name("tiny")
    w.add_vocab_size(c.vocab_size)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_block_count(blocks)
    w.add_head_count(c.num_attention_heads)
    w.add_key_length(c.head_dim)
    w.add_value_length(c.head_dim)
    w.add_ssm_conv_kernel(kernel)
    w.add_ssm_inner_size(heads * size)
    w.add_ssm_state_size(state)
    w.add_ssm_time_step_rank(heads)
    w.add_ssm_group_count(groups)
    w.add_file_type(0)
    w.add_tokenizer_model("no_vocab")


def falcon_keys(w, c):
    sizes(w, c, c.num_hidden_layers, c.mamba_n_heads, c.mamba_d_head, c.mamba_d_state, c.mamba_d_conv, c.mamba_n_groups)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_rope_dimension_count(c.head_dim)
    w.add_rope_freq_base(c.rope_parameters["rope_theta"])
    w.add_layer_norm_rms_eps(c.rms_norm_eps)


def nemotron_keys(w, c):
    kinds = c.layers_block_type
    sizes(w, c, len(kinds), c.mamba_num_heads, c.mamba_head_dim, c.ssm_state_size, c.conv_kernel, c.n_groups)
    mapped = ("moe", c.moe_intermediate_size) if "moe" in kinds else ("mlp", c.intermediate_size)
    w.add_feed_forward_length([mapped[1] if kind == mapped[0] else 0 for kind in kinds])
    w.add_head_count_kv([c.num_key_value_heads if kind == "full_attention" else 0 for kind in kinds])
    w.add_layer_norm_eps(c.layer_norm_epsilon)
    w.add_layer_norm_rms_eps(c.layer_norm_epsilon)
    if "moe" not in kinds:
        return
    w.add_expert_count(c.n_routed_experts)
    w.add_expert_used_count(c.num_experts_per_tok)
    w.add_expert_feed_forward_length(c.moe_intermediate_size)
    w.add_expert_shared_feed_forward_length(c.moe_shared_expert_intermediate_size)
    w.add_expert_shared_count(1)
    w.add_expert_weights_norm(c.norm_topk_prob)
    w.add_expert_weights_scale(c.routed_scaling_factor)
    w.add_expert_group_count(c.n_group)
    w.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if c.moe_latent_size:
        w.add_moe_latent_size(c.moe_latent_size)


def write(model, path):
    c = model.config
    falcon = c.model_type == "falcon_h1"
    w = gguf.GGUFWriter(path, "falcon-h1" if falcon else "nemotron_h_moe" if "moe" in c.layers_block_type else "nemotron_h")
    (falcon_keys if falcon else nemotron_keys)(w, c)
    for key, values in model.state_dict().items():
        stored = as_stored(key, values, c.mamba_n_groups if falcon else c.n_groups)
        w.add_tensor(name_in_file(key), (stored * multiplier(key, c) if falcon else stored).contiguous().numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def decided(kinds):
    """The first random Nemotron-H whose experts are decided clearly, and what it computes."""
    for seed in range(100):
        model = models.build(transformers.NemotronHForCausalLM, dict(NEMOTRON, layers_block_type=kinds), seed)
        margins, noise, golden = models.Margins(model), torch.Generator().manual_seed(seed), {}
        for name, count in LENGTHS.items():
            golden[f"{name}.input_ids"] = torch.randint(3, NEMOTRON["vocab_size"], (1, count), generator=noise)
            golden[f"{name}.logits"] = models.outputs(model, golden[f"{name}.input_ids"][0].tolist())[None].contiguous()
        if margins.least >= LEAST_MARGIN:
            return model, golden
    raise SystemExit("make_gguf.py: no seed decides all experts clearly")


def made(testdata):
    folder = testdata / "golden" / "falcon_h1"
    kept = [f"{name}.{what}" for name in LENGTHS for what in ("input_ids", "logits")]
    golden = safetensors.torch.load_file(folder / "golden.safetensors")
    yield "falcon_h1", models.load(transformers.FalconH1ForCausalLM, folder), {name: golden[name] for name in kept}
    yield ("nemotron_h", *decided(["linear_attention", "mlp", "full_attention"]))
    yield ("nemotron_h_moe", *decided(["linear_attention", "moe", "full_attention"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--testdata", type=pathlib.Path, default=ROOT / "testdata", help="folder to write into")
    testdata = parser.parse_args().testdata
    for name, model, golden in made(testdata):
        path = testdata / "gguf" / "families" / name
        write(model, f"{path}.gguf")
        safetensors.torch.save_file(golden, f"{path}.golden.safetensors")
        os.chmod(f"{path}.golden.safetensors", 0o644)


if __name__ == "__main__":
    main()
