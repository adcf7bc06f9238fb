"""Tiny models of transformers, and the same weights in the form that ExecuTorch's export_llm takes.

Names of weights and of parameters are those of executorch/examples/models (its convert_weights.py, where the package can import it).
"""
import json

import common

SIZES = {"vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
ARGUMENTS = {"dim": 64, "n_layers": 3, "n_heads": 4, "n_kv_heads": 2, "vocab_size": 96, "hidden_dim": 96, "norm_eps": 1e-5}
HF_ROPE = {"use_hf_rope": True, "rope_theta": 10000.0}
QK_NORM = {"use_qk_norm": True, "qk_norm_before_rope": True}
LAYER_NAMES = {
    "self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk", "self_attn.v_proj": "attention.wv",
    "self_attn.o_proj": "attention.wo", "self_attn.out_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1",
    "mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3", "self_attn.q_norm": "attention.q_norm_fn",
    "self_attn.k_norm": "attention.k_norm_fn", "input_layernorm": "attention_norm", "post_attention_layernorm": "ffn_norm",
}


def plain_names(state):
    """The names of Meta's checkpoints; fused matrices of phi3 are split."""
    out = {}
    for key, value in state.items():
        key = key.removeprefix("model.").replace("embed_tokens", "tok_embeddings").replace("lm_head", "output")
        if "qkv_proj" in key:
            q, k, v = value.split([64, 32, 32])
            base = key.split(".self_attn")[0] + ".attention."
            out |= {base + "wq.weight": q, base + "wk.weight": k, base + "wv.weight": v}
        elif "gate_up_proj" in key:
            base = key.split(".mlp")[0] + ".feed_forward."
            out |= dict(zip((base + "w1.weight", base + "w3.weight"), value.chunk(2)))
        else:
            for theirs, ours in LAYER_NAMES.items():
                key = key.replace(theirs, ours)
            out[key] = value
    out.setdefault("output.weight", out["tok_embeddings.weight"])
    return out


def meta_order(state):
    """Rows of q and k in Meta's order: neighbours are turned together."""
    out = plain_names(state)
    for key, value in out.items():
        if key.endswith(("wq.weight", "wk.weight")):
            heads = value.shape[0] // 16
            out[key] = value.view(heads, 2, 8, -1).transpose(1, 2).reshape(value.shape).contiguous()
    return out


def with_official(module, function):
    """The converter of executorch.examples.models."""
    def convert(state):
        import importlib
        return getattr(importlib.import_module(f"executorch.examples.models.{module}.convert_weights"), function)(state)
    return convert


def rope(kind="default", **more):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


# Gemma 3 is not here: its norms behind attention and feed-forward are parameters that export_llm's model (1.5.1) does not use, so that
# its programs are another model than transformers'.
# name: (model_type, its config, model class of export_llm, its parameters, conversion of the weights)
MODELS = {
    "llama3_2": ("llama", {"head_dim": 16, "rms_norm_eps": 1e-5, **rope("llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0,
                                                                        original_max_position_embeddings=8192)},
                 "llama3_2", {"rope_theta": 10000.0, "use_scaled_rope": True}, meta_order),
    "qwen2_5": ("qwen2", {"rms_norm_eps": 1e-5}, "qwen2_5_0_5b", {**HF_ROPE, "attention_qkv_bias": True}, plain_names),
    "qwen3": ("qwen3", {"head_dim": 32, "rms_norm_eps": 1e-5, "tie_word_embeddings": True}, "qwen3_0_6b",
              {**HF_ROPE, **QK_NORM, "head_dim": 32}, plain_names),
    "qwen3_5": ("qwen3_5_text", {"head_dim": 16, "rms_norm_eps": 1e-5, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
                                 "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
                                 **rope(partial_rotary_factor=0.5)},
                "qwen3_5_0_8b", {**HF_ROPE, **QK_NORM, "head_dim": 16, "partial_rotary_factor": 0.5, "rms_norm_add_unit_offset": True,
                                 "use_q_gate": True, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
                                 "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16},
                with_official("qwen3_5", "qwen_3_5_to_meta")),
    "phi_4_mini": ("phi3", {"rms_norm_eps": 1e-5, "partial_rotary_factor": 0.75, "original_max_position_embeddings": 64,
                            **rope(partial_rotary_factor=0.75)},
                   "phi_4_mini", {**HF_ROPE, "partial_rotary_factor": 0.75}, plain_names),
    "lfm2": ("lfm2", {"norm_eps": 1e-5, "conv_L_cache": 3, "block_auto_adjust_ff_dim": False,
                      "layer_types": ["conv", "full_attention", "conv"], **rope()},
             "lfm2_350m", {**HF_ROPE, **QK_NORM, "layer_types": ["conv", "full_attention", "conv"]},
             with_official("lfm2", "lfm_2_to_meta")),
}


def save(name, folder, seed):
    """Writes the model as transformers does, and `model.pth` and `params.json` for export_llm."""
    import torch
    import transformers
    kind, config, _, arguments, convert = MODELS[name]
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **SIZES | config))
    common.save_tiny(model, folder / "checkpoint", seed=seed)
    state = {key: value.detach().clone() for key, value in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del state["lm_head.weight"]
    torch.save(convert(state), folder / "model.pth")
    (folder / "params.json").write_text(json.dumps(ARGUMENTS | arguments))
    return model


def export(name, folder, xnnpack, model, quantization, call=31):
    """The program that export_llm makes of what save() has written, with parts `model` and `quantization` of its configuration.

    Its calls have up to `call` tokens.

    Models with a recurrent state take one token a call, as their own configurations in executorch/examples say.
    """
    from executorch.examples.models.llama.export_llama_lib import export_llama
    from executorch.extension.llm.export.config.llm_config import LlmConfig
    from omegaconf import OmegaConf
    config = {
        "base": {"model_class": MODELS[name][2], "checkpoint": str(folder / "model.pth"), "params": str(folder / "params.json"),
                 "metadata": '{"get_bos_id": 1, "get_eos_ids": [2]}'},
        "model": {"use_kv_cache": True, "use_sdpa_with_kv_cache": True,
                  "enable_dynamic_shape": name not in ("qwen3_5", "lfm2")} | model,
        "export": {"max_seq_length": call + 1, "max_context_length": 32, "output_name": "model", "output_dir": str(folder)},
        "backend": {"xnnpack": {"enabled": xnnpack, "extended_ops": True}},
        "quantization": quantization,
    }
    export_llama(OmegaConf.to_object(OmegaConf.merge(OmegaConf.structured(LlmConfig), OmegaConf.create(config))))
    return folder / "model.pte"
