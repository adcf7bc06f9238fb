"""Random configurations of the families that came last, as llama_families.py has them."""
from draw import ATTENTION, swap, without
from expert_families import MOSTLY_PLAIN

PLAIN_NESTED = (60, 15, 10, 15, 0)


def olmo_hybrid(r):
    c, d = r.base(own_head_dim=False, states_head_dim=False, layers=r.choice([2, 3, 4, 5]))
    c["attention_bias"] = r.chance(0.3)
    if r.chance(0.5):
        c["layer_types"] = r.layer_types(c["num_hidden_layers"], "linear_attention", "full_attention")
    if r.chance(0.7):
        heads = r.choice([1, 2, 3])
        c.update(linear_num_key_heads=heads, linear_num_value_heads=heads * r.choice([1, 1, 2, 3]))
    if r.chance(0.7):
        c["linear_key_head_dim"] = r.choice([6, 8, 12, 16])
    if r.chance(0.7):
        c["linear_value_head_dim"] = r.choice([8, 12, 16, 20])
    c.update(linear_conv_kernel_dim=r.choice([2, 3, 4, 4]), linear_allow_neg_eigval=r.chance(0.6))
    r.rope(c, head_dim=d)
    if r.chance(0.4):
        c["rope_parameters"] = dict(rope_type="default", rope_theta=None)
    return "OlmoHybridForCausalLM", c


def mimo_v2_flash(r):
    c, _ = r.base()
    layers = c["num_hidden_layers"]
    experts = r.experts(c, names=("n_routed_experts", "num_experts_per_tok"))
    heads, head_dim = r.choice([2, 4, 4, 6, 8]), r.choice([12, 18, 24, 36])
    groups = r.choice([n for n in (1, 1, 2, 3) if experts % n == 0 and experts // n >= 2])
    chosen = r.randint(1, groups)
    c.update(num_attention_heads=heads, num_key_value_heads=r.choice([n for n in (1, 2, 3, 4) if heads % (2 * n) == 0]),
             head_dim=head_dim, v_head_dim=r.choice([n for n in (8, 12, 16, 24) if n <= head_dim]), attention_bias=r.chance(0.3),
             attention_value_scale=r.choice([0.707, 1.0, 0.3, None]), sliding_window=r.window(), moe_intermediate_size=r.choice([16, 24]),
             n_group=groups, topk_group=chosen, norm_topk_prob=r.chance(0.6), routed_scaling_factor=r.choice([None, 1.0, 2.5]))
    c["num_experts_per_tok"] = min(c["num_experts_per_tok"], chosen * (experts // groups))
    if r.chance(0.6):
        c["layer_types"] = r.layer_types(layers, *ATTENTION)
    if r.chance(0.6):
        c["mlp_layer_types"] = r.layer_types(layers, "sparse", "dense", 0.7)
    if r.chance(0.2):
        c["sliding_window_size"] = r.window()
    if r.chance(0.6):
        parts = {}
        for kind in ATTENTION:
            rope = r.rope(c, weights=PLAIN_NESTED)
            turned = [part for part in (0.334, 0.5, 0.25, 1.0) if int(head_dim * part) % 2 == 0]
            if r.chance(0.7):
                rope["partial_rotary_factor"] = r.choice(turned)
            parts[kind] = rope
        c["rope_parameters"] = parts
    return "MiMoV2FlashForCausalLM", c


def dbrx(r):
    c, _ = r.base(own_head_dim=False, states_head_dim=False)
    swap(c, "hidden_size", "d_model")
    swap(c, "num_attention_heads", "n_heads")
    swap(c, "num_hidden_layers", "n_layers")
    swap(c, "max_position_embeddings", "max_seq_len")
    key_heads = c.pop("num_key_value_heads")
    without(c, "intermediate_size", "rms_norm_eps", "hidden_act")
    experts = r.choice([2, 3, 4, 6])
    c.update(tie_word_embeddings=False,
             attn_config=dict(kv_n_heads=key_heads, clip_qkv=r.choice([8, 1.0, 0.4]), rope_theta=10000.0),
             ffn_config=dict(ffn_hidden_size=r.choice([16, 24, 40]), moe_num_experts=experts, moe_top_k=r.randint(1, experts),
                             moe_normalize_expert_weights=r.choice([1.0, 1.0, None]),
                             ffn_act_fn=r.choice([None, dict(name="silu"), dict(name="gelu"), dict(name="relu")])))
    if r.chance(0.5):
        r.rope(c)
    return "DbrxForCausalLM", c


def jetmoe(r):
    c, d = r.base()
    experts = r.choice([2, 3, 4, 6])
    swap(c, "hidden_act", "activation_function")
    without(c, "num_attention_heads", "head_dim")
    c.update(num_key_value_heads=r.choice([1, 2, 3, 4]), kv_channels=d, num_local_experts=experts,
             num_experts_per_tok=r.randint(1, min(3, experts)), activation_function=r.choice(["silu", "silu", "gelu", "relu"]),
             intermediate_size=r.choice([16, 24, 40]))
    r.rope(c, weights=MOSTLY_PLAIN)
    return "JetMoeForCausalLM", c


def doge(r):
    c, _ = r.base(own_head_dim=r.chance(0.3))
    most = c["max_position_embeddings"]
    c.update(attention_bias=r.chance(0.3), mlp_bias=r.chance(0.3), sliding_window=r.choice([None, None, r.window()]),
             keep_window_size=r.choice([most, 2048, 128]))
    r.rope(c)
    return "DogeForCausalLM", c


NEWEST = dict(dbrx=dbrx, doge=doge, jetmoe=jetmoe, mimo_v2_flash=mimo_v2_flash, olmo_hybrid=olmo_hybrid)
