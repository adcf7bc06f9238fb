"""How a config.json may be written otherwise: in the style of transformers 4, with keys left out or
with keys of other families in it. What the result means is for transformers to say, which reads it."""

DROPPED = (
    "rms_norm_eps norm_eps rope_theta rope_parameters rope_scaling hidden_act hidden_activation attention_bias mlp_bias "
    "tie_word_embeddings sliding_window use_sliding_window max_window_layers layer_types no_rope_layers "
    "no_rope_layer_interval partial_rotary_factor head_dim query_pre_attn_scalar attn_logit_softcapping "
    "final_logit_softcapping norm_topk_prob decoder_sparse_step mlp_only_layers embedding_multiplier logits_scaling "
    "residual_multiplier attention_multiplier rope_local_base_freq num_key_value_heads max_position_embeddings "
    "original_max_position_embeddings sliding_window_pattern full_attention_interval conv_bias conv_L_cache "
    "block_auto_adjust_ff_dim block_ffn_dim_multiplier activation_function layer_norm_epsilon rotary_dim bos_token_id "
    "eos_token_id layer_norm_eps pad_token_id local_attention global_attn_every_n_layers global_rope_theta "
    "local_rope_theta norm_bias activation").split()

# Keys that some family reads and most do not.
ADDED = [
    ("pretraining_tp", 1), ("attention_dropout", 0.0), ("_name_or_path", "x/y"), ("rope_interleaved", False),
    ("use_cache", True), ("attn_implementation", "flash_attention_2"), ("auto_map", {"AutoConfig": "a.B"}),
    ("head_dim", None), ("rope_scaling", None), ("sliding_window", 3), ("use_sliding_window", False),
    ("attention_bias", False), ("mlp_bias", False), ("partial_rotary_factor", 0.5), ("max_window_layers", 1),
    ("hidden_activation", None), ("hidden_act", "silu"), ("use_bidirectional_attention", False),
    ("attn_logit_softcapping", None), ("tie_embedding", True), ("torch_dtype", "bfloat16"),
    ("cache_implementation", "hybrid"), ("layer_types", None), ("num_experts", 4), ("norm_topk_prob", True),
    ("head_dim", 16), ("num_key_value_heads", None), ("attention_multiplier", 0.3), ("no_rope_layers", None),
    ("rope_theta", 5000.0), ("original_max_position_embeddings", 40), ("attn_output_gate", True),
    ("residual_multiplier", 0.5), ("logits_scaling", 2.0), ("embedding_multiplier", 2.0),
    ("query_pre_attn_scalar", 100), ("rms_norm_eps", 1e-4), ("norm_eps", 1e-4), ("theta", 777.0), ("position_embedding_type", "absolute"), ("position_embedding_type", "relative_key"),
    ("is_decoder", False), ("add_cross_attention", False), ("layer_norm_eps", 1e-4), ("is_causal", True),
    ("pad_token_id", 3)]


def legacy_rope(r, config, model_type):
    rope = config.pop("rope_parameters", None)
    if not rope:
        return
    if model_type.startswith("qwen3_5"):
        config["rope_parameters"] = rope
        return
    if "full_attention" in rope:
        local = rope.get("sliding_attention", {}).get("rope_theta", 10000.0)
        rope = dict(rope["full_attention"])
        config["rope_local_base_freq"] = local
    rope = dict(rope)
    config["rope_theta"] = rope.pop("rope_theta", 10000.0)
    if "partial_rotary_factor" in rope:
        config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
    if model_type == "phi3":
        rope.pop("original_max_position_embeddings", None)
    if rope["rope_type"] == "default":
        config["rope_scaling"] = None
        return
    how = r.choice(["rope_type", "type", "both"])
    if how != "rope_type":
        rope["type"] = rope["rope_type"]
    if how == "type":
        rope.pop("rope_type")
        if model_type == "phi3" and rope["type"] == "longrope" and r.chance(0.3):
            rope["type"] = "su"
    config["rope_scaling"] = rope


def stated_once(config):
    """Gemma 4 as it is released: the heads of all layers with full attention are stated once."""
    heads = config.pop("per_layer_config", None)
    if heads is None:
        return
    first = next(iter(heads.values()), {})
    config["global_head_dim"] = first.get("head_dim", config["head_dim"])
    if "num_key_value_heads" in first:
        config["num_global_key_value_heads"] = first["num_key_value_heads"]


def legacy(r, config):
    """The style of transformers 4: rope_theta and rope_scaling, torch_dtype, often no layer_types."""
    if isinstance(config.get("text_config"), dict):
        legacy(r, config["text_config"])
    model_type = config.get("model_type", "")
    if "dtype" in config:
        config["torch_dtype"] = config.pop("dtype")
    legacy_rope(r, config, model_type)
    if r.chance(0.6):
        config.pop("layer_types", None)
    if model_type == "lfm2":
        if r.chance(0.5):
            config["block_ff_dim"] = config.pop("intermediate_size")
        if r.chance(0.5):
            config["tie_embedding"] = config.pop("tie_word_embeddings", True)
    if r.chance(0.5):
        for key in [k for k, v in config.items() if v is None]:
            config.pop(key)


def change(r, config):
    """Leaves out keys and adds some; returns what was done."""
    part = config["text_config"] if isinstance(config.get("text_config"), dict) else config
    done = []
    for _ in range(r.choice([0, 0, 1, 1, 2, 3])):
        present = [k for k in DROPPED if k in part]
        if present and r.chance(0.5):
            key = r.choice(present)
            part.pop(key)
            done.append(f"without {key}")
            continue
        key, value = r.choice(ADDED)
        if part.get(key) is None:
            part[key] = value
            done.append(f"with {key} {value}")
    return done


def rewrite(r, config):
    """A config that was saved by transformers 5, as somebody else may have written it."""
    done = []
    part = config.get("text_config") or config
    if part.get("model_type", "").startswith("gemma4") and r.chance(0.6):
        stated_once(part)
        done.append("heads stated once")
    if r.chance(0.35):
        legacy(r, config)
        done.append("style of transformers 4")
    if r.chance(0.4):
        done += change(r, config)
    return done
