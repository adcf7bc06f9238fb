"""Random configurations of families with the experts or the latent attention of DeepSeek V3, and others, as llama_families.py has them."""
from draw import ATTENTION, PLAIN_ROPE, swap, without
from llama_families import granite_scalars

MOSTLY_PLAIN = (70, 10, 10, 5, 5)


def sizes(r, c, *, names=("n_routed_experts", "n_shared_experts")):
    groups = r.choice([1, 1, 2])
    c.update({names[0]: r.choice([4, 8]), names[1]: r.choice([1, 2])}, hidden_act="silu",
             moe_intermediate_size=r.choice([16, 24]), routed_scaling_factor=r.choice([1.0, 2.5]),
             norm_topk_prob=r.chance(0.5), n_group=groups, topk_group=r.randint(1, groups), num_experts_per_tok=r.randint(1, 2))


def mlp_types(r, c):
    c["mlp_layer_types"] = r.layer_types(c["num_hidden_layers"], "sparse", "dense", 0.7)


def dots1(r):
    c, d = r.base()
    sizes(r, c)
    c.update(head_dim=d, first_k_dense_replace=r.choice([0, 1, 2]), attention_bias=r.chance(0.3),
             sliding_window=r.choice([None, r.window()]), max_window_layers=r.choice([0, 1, 2, 62]))
    if c["sliding_window"] and r.chance(0.4):
        c["layer_types"] = r.layer_types(c["num_hidden_layers"], *ATTENTION)
    r.rope(c)
    return "Dots1ForCausalLM", c


def exaone_moe(r):
    c, d = r.base()
    sizes(r, c, names=("num_experts", "num_shared_experts"))
    c.update(head_dim=d, sliding_window=r.window(), sliding_window_pattern=r.choice([1, 2, 3, 4]),
             first_k_dense_replace=r.choice([0, 1, 2]))
    if r.chance(0.4):
        mlp_types(r, c)
    if r.chance(0.4):
        c["layer_types"] = r.layer_types(c["num_hidden_layers"], *ATTENTION)
    r.rope(c)
    return "ExaoneMoeForCausalLM", c


def latent(r, c):
    c.update(num_key_value_heads=c["num_attention_heads"], q_lora_rank=r.choice([None, 16, 24]),
             kv_lora_rank=r.choice([16, 24]), qk_nope_head_dim=r.choice([8, 12, 16]), qk_rope_head_dim=r.choice([4, 8, 16]),
             v_head_dim=r.choice([8, 12, 16]), attention_bias=r.chance(0.3), rope_interleave=r.chance(0.7))
    rope = r.rope(c, weights=(60, 5, 5, 30, 0))
    if rope["rope_type"] == "yarn":
        rope.update(mscale=r.choice([1.0, 0.707]), mscale_all_dim=r.choice([1.0, 0.707, 0.5, 0]))


def glm4_moe_lite(r):
    c, _ = r.base(own_head_dim=False, states_head_dim=False)
    sizes(r, c)
    latent(r, c)
    if r.chance(0.5):
        mlp_types(r, c)
    return "Glm4MoeLiteForCausalLM", c


def flex_olmo(r):
    c, _ = r.base(own_head_dim=False, states_head_dim=False)
    r.experts(c)
    c.update(norm_topk_prob=r.chance(0.5), attention_bias=r.chance(0.3))
    r.rope(c)
    return "FlexOlmoForCausalLM", c


def minimax_m2(r):
    c, d = r.base()
    r.experts(c, names=("num_local_experts", "num_experts_per_tok"))
    c["head_dim"] = d
    if r.chance(0.4):
        r.rope(c, weights=MOSTLY_PLAIN, head_dim=d)
        c["rotary_dim"] = r.choice([n for n in (4, 8, 12) if n <= d])
    else:
        r.partial_rope(c, d, 0.5, 0.5, 1.0, weights=MOSTLY_PLAIN)
    return "MiniMaxM2ForCausalLM", c


def hunyuan_v1_moe(r):
    c, d = r.base()
    layers = c["num_hidden_layers"]
    count = r.experts(c, names=("num_experts", "moe_topk"))
    c.update(head_dim=d, attention_bias=r.chance(0.3))
    if r.chance(0.3):
        c["moe_topk"] = [r.randint(1, count)] * layers
    r.rope(c)
    return "HunYuanMoEV1ForCausalLM", c


def ernie4_5_moe(r):
    c, d = r.base()
    r.experts(c, names=("moe_num_experts", "moe_k"))
    c.update(head_dim=d, use_bias=r.chance(0.3), moe_intermediate_size=r.choice([16, 24]), moe_num_shared_experts=r.choice([0, 1, 2]),
             moe_layer_start_index=r.choice([0, 1, 2]), moe_layer_end_index=r.choice([-1, -1, 0, 1, 9]),
             moe_layer_interval=r.choice([1, 1, 2]), moe_norm_min=r.choice([1e-12, 1e-12, 0.4]))
    r.rope(c, weights=PLAIN_ROPE)
    return "Ernie4_5_MoeForCausalLM", c


def granitemoeshared(r):
    c, d = r.base(own_head_dim=False)
    granite_scalars(r, c, d)
    r.experts(c, names=("num_local_experts", "num_experts_per_tok"))
    c.update(attention_bias=r.chance(0.3), shared_intermediate_size=r.choice([0, 24, 40]))
    r.rope(c)
    return "GraniteMoeSharedForCausalLM", c


# ---------------------------------------------------------------- without experts
def apertus(r):
    c, d = r.base()
    c.update(head_dim=d, hidden_act="xielu", attention_bias=r.chance(0.3))
    if r.chance(0.7):
        r.rope(c)
    return "ApertusForCausalLM", c


def nanochat(r):
    c, d = r.base(usual="relu2")
    c.update(head_dim=d, attention_bias=r.chance(0.3), final_logit_softcapping=r.choice([15.0, 3.0, None]))
    r.rope(c)
    return "NanoChatForCausalLM", c


def vaultgemma(r):
    c, d = r.base(usual="gelu_pytorch_tanh")
    while c["hidden_size"] % c["num_attention_heads"]:
        c, d = r.base(usual="gelu_pytorch_tanh")
    swap(c, "hidden_act", "hidden_activation")
    c.update(head_dim=d, attention_bias=r.chance(0.15), query_pre_attn_scalar=r.choice([d, 256, 15, 144]),
             attn_logit_softcapping=r.choice([50.0, 5.0, None]), final_logit_softcapping=r.choice([30.0, 3.0, None]),
             sliding_window=r.window())
    if r.chance(0.4):
        c["layer_types"] = r.layer_types(c["num_hidden_layers"], *ATTENTION)
    r.rope(c, weights=PLAIN_ROPE)
    return "VaultGemmaForCausalLM", c


def persimmon(r):
    c, d = r.base(own_head_dim=False, states_head_dim=False, usual="relu2")
    swap(c, "rms_norm_eps", "layer_norm_eps")
    without(c, "num_key_value_heads")
    c["qk_layernorm"] = r.chance(0.6)
    r.partial_rope(c, d, 0.5, 0.5, 0.25, 1.0, weights=MOSTLY_PLAIN)
    return "PersimmonForCausalLM", c


MORE = dict(apertus=apertus, dots1=dots1, ernie4_5_moe=ernie4_5_moe, exaone_moe=exaone_moe, flex_olmo=flex_olmo,
            glm4_moe_lite=glm4_moe_lite, granitemoeshared=granitemoeshared, hunyuan_v1_moe=hunyuan_v1_moe, minimax_m2=minimax_m2,
            nanochat=nanochat, persimmon=persimmon, vaultgemma=vaultgemma)
