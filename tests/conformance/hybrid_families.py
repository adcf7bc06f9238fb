"""Random configurations of families with states instead of attention, or beside it."""
from draw import divisors, swap, without


def mamba2_sizes(r, c, inner, **names):
    """The sizes of Mamba-2 for `inner` channels, under the names of a class."""
    heads = r.choice([n for n in (1, 2, 3, 4, 6, 8) if inner % n == 0])
    sizes = dict(heads=heads, groups=r.choice([1, 1] + divisors(heads)), state=r.choice([8, 16, 24]),
                 kernel=r.choice([2, 3, 4]), chunk=r.choice([4, 8, 16, 256]), size=inner // heads)
    c.update({name: sizes[part] for part, name in names.items()})


def limit(r, c):
    if r.chance(0.15):
        c["time_step_limit"] = r.choice([[0.0, 0.5], [0.05, 2.0], [0.0, 1e9]])


def alone(r, usual="silu"):
    """A model of nothing but states: no heads, no MLP."""
    c, _ = r.base(own_head_dim=False, states_head_dim=False, usual=usual)
    without(c, "num_key_value_heads", "num_attention_heads", "intermediate_size", "max_position_embeddings")
    swap(c, "rms_norm_eps", "layer_norm_epsilon")
    return c


def mamba2(r):
    c = alone(r)
    c.update(expand=2, use_bias=r.chance(0.3), use_conv_bias=r.chance(0.7), residual_in_fp32=r.chance(0.5))
    mamba2_sizes(r, c, 2 * c["hidden_size"], heads="num_heads", groups="n_groups", state="state_size",
                 kernel="conv_kernel", chunk="chunk_size", size="head_dim")
    limit(r, c)
    return "Mamba2ForCausalLM", c


def mamba(r):
    c = alone(r)
    c.update(expand=r.choice([1, 2]), use_bias=r.chance(0.3), use_conv_bias=r.chance(0.7),
             state_size=r.choice([4, 8, 16]), conv_kernel=r.choice([2, 3, 4]), time_step_rank=r.choice(["auto", 3, 8]))
    return "MambaForCausalLM", c


def falcon_mamba(r):
    _, c = mamba(r)
    c["mixer_rms_eps"] = r.choice([1e-6, 1e-5, 1e-3])
    return "FalconMambaForCausalLM", c


def bamba(r):
    c, d = r.base(own_head_dim=r.chance(0.3), states_head_dim=r.chance(0.3))
    c.update(mamba_expand=2, mamba_conv_bias=r.chance(0.7), mamba_proj_bias=r.chance(0.3), attention_bias=r.chance(0.3),
             mlp_bias=r.chance(0.3), attn_layer_indices=r.choice([None, [0], [1], [0, 2], [1, 3, 9]]))
    mamba2_sizes(r, c, 2 * c["hidden_size"], heads="mamba_n_heads", groups="mamba_n_groups", state="mamba_d_state",
                 kernel="mamba_d_conv", chunk="mamba_chunk_size", size="mamba_d_head")
    if r.chance(0.5):
        c["mamba_d_head"] = "auto"
    limit(r, c)
    r.rope(c, head_dim=d // 2)
    return "BambaForCausalLM", c


def falcon_h1(r):
    c, d = r.base(own_head_dim=r.chance(0.5), states_head_dim=r.chance(0.5))
    inner = r.choice([None, 24, 48, 64, 96])
    factor = lambda: r.choice([1.0, 1.0, 0.5, 0.0833, 1.7, 3.25])
    c.update(mamba_d_ssm=inner, mamba_expand=r.choice([1, 2]), mamba_conv_bias=r.chance(0.7),
             mamba_proj_bias=r.chance(0.3), projectors_bias=r.chance(0.3), attention_bias=r.chance(0.3),
             mlp_bias=r.chance(0.3), mamba_norm_before_gate=r.chance(0.5), mamba_rms_norm=r.chance(0.6),
             lm_head_multiplier=factor(), embedding_multiplier=factor(), key_multiplier=factor(),
             attention_out_multiplier=factor(), attention_in_multiplier=factor(), ssm_in_multiplier=factor(),
             ssm_out_multiplier=factor())
    if r.chance(0.7):
        c.update(mlp_multipliers=[factor(), factor()], ssm_multipliers=[factor() for _ in range(5)])
    mamba2_sizes(r, c, inner or c["mamba_expand"] * c["hidden_size"], heads="mamba_n_heads", groups="mamba_n_groups",
                 state="mamba_d_state", kernel="mamba_d_conv", chunk="mamba_chunk_size", size="mamba_d_head")
    if r.chance(0.5):
        c["mamba_d_head"] = "auto"
    limit(r, c)
    r.rope(c, head_dim=d)
    return "FalconH1ForCausalLM", c


def nemotron_h(r):
    c, d = r.base(usual="relu2")
    without(c, "hidden_act", "num_hidden_layers")
    swap(c, "rms_norm_eps", "layer_norm_epsilon")
    kinds = r.choice([("linear_attention", "full_attention", "mlp"), ("linear_attention", "full_attention", "mlp", "moe")])
    types = [r.choice(kinds) for _ in range(r.choice([2, 3, 4, 5]))]
    groups = r.choice([1, 1, 2])
    experts = groups * r.choice([2, 3, 4])
    chosen = r.randint(1, groups)
    heads, size = r.choice([1, 2, 4, 6]), r.choice([4, 8, 12])
    c.update(head_dim=d, layers_block_type=types, mlp_bias=r.chance(0.3), use_bias=r.chance(0.3),
             use_conv_bias=r.chance(0.7), attention_bias=r.chance(0.3), mamba_proj_bias=r.chance(0.3),
             mlp_hidden_act="relu2" if "moe" in types else r.activation("relu2"), mamba_hidden_act=r.activation("silu"),
             ssm_state_size=r.choice([8, 16, 24]), mamba_num_heads=heads, mamba_head_dim=size,
             n_groups=r.choice(divisors(heads)), conv_kernel=r.choice([2, 3, 4]), expand=2,
             time_step_min=r.choice([0.001, 0.001, 0.1, 0.4]), chunk_size=r.choice([4, 8, 16, 128]),
             n_routed_experts=experts, n_group=groups, topk_group=chosen, norm_topk_prob=r.chance(0.7),
             num_experts_per_tok=r.randint(1, experts // groups * chosen), moe_intermediate_size=r.choice([16, 24, 40]),
             moe_shared_expert_intermediate_size=r.choice([16, 24, 40]), moe_latent_size=r.choice([None, None, 16, 24]),
             routed_scaling_factor=r.choice([1.0, 2.5, 0.5]))
    if r.chance(0.15):
        c["time_step_limit"] = [0.0, 0.5]  # which the class ignores
    return "NemotronHForCausalLM", c


def zamba2(r):
    c, d = r.base(own_head_dim=False, states_head_dim=False, layers=r.choice([2, 3, 4, 5]), usual="gelu")
    adapts = r.chance(0.6)
    if adapts:
        c["num_key_value_heads"] = c["num_attention_heads"]
    if r.chance(0.1):
        c["intermediate_size"] = None
    c.update(layers_block_type=r.layer_types(c["num_hidden_layers"], "hybrid", "mamba", 0.6), mamba_expand=2,
             use_shared_attention_adapter=adapts, adapter_rank=r.choice([2, 4, 8]), num_mem_blocks=r.choice([1, 1, 2, 3]),
             add_bias_linear=r.chance(0.3), use_mem_rope=r.chance(0.6), use_long_context=r.chance(0.2),
             use_conv_bias=r.chance(0.7), time_step_min=r.choice([0.001, 0.001, 0.1, 0.4]))
    mamba2_sizes(r, c, 2 * c["hidden_size"], heads="n_mamba_heads", groups="mamba_ngroups", state="mamba_d_state",
                 kernel="mamba_d_conv", chunk="chunk_size")
    r.rope(c, head_dim=2 * d)
    return "Zamba2ForCausalLM", c


def jamba(r):
    c, d = r.base(own_head_dim=r.chance(0.3), states_head_dim=r.chance(0.3))
    experts = r.choice([1, 1, 2, 4, 8])
    if experts > 1:
        c["hidden_act"] = "silu"
    period, other = r.choice([1, 2, 3, 4]), r.choice([1, 2, 3])
    c.update(num_experts=experts, num_experts_per_tok=r.randint(1, experts), expert_layer_period=other,
             expert_layer_offset=r.randrange(other), attn_layer_period=period, attn_layer_offset=r.randrange(period),
             mamba_d_state=r.choice([4, 8, 16]), mamba_d_conv=r.choice([2, 3, 4]), mamba_expand=r.choice([1, 2]),
             mamba_dt_rank=r.choice(["auto", 3, 8]), mamba_conv_bias=r.chance(0.7), mamba_proj_bias=r.chance(0.3))
    return "JambaForCausalLM", c


HYBRIDS = dict(mamba2=mamba2, mamba=mamba, falcon_mamba=falcon_mamba, bamba=bamba, falcon_h1=falcon_h1,
               nemotron_h=nemotron_h, zamba2=zamba2, jamba=jamba)
