"""Random configurations of the other families and of encoders, as llama_families.py has them."""
import classifier_families
from draw import ATTENTION, PLAIN_ROPE, divisors, swap, without
from encoder_families import ENCODERS
from expert_families import MORE
from gpt_families import GPT_LIKE
from hybrid_families import HYBRIDS
from llama_families import LLAMA_LIKE, granite_scalars
from newest_families import NEWEST
from recent_families import RECENT

MOSTLY_PLAIN = (70, 10, 10, 5, 5)


# ---------------------------------------------------------------- Gemma
def gemma(r):
    c, d = r.base(usual="gelu_pytorch_tanh")
    c.update(head_dim=d, attention_bias=r.chance(0.15))
    r.rope(c, weights=PLAIN_ROPE)
    return "GemmaForCausalLM", c


def gemma2(r):
    c, d = r.base(usual="gelu_pytorch_tanh")
    swap(c, "hidden_act", "hidden_activation")
    c.update(head_dim=d, attention_bias=r.chance(0.15), query_pre_attn_scalar=r.choice([d, 256, 15, 144]),
             attn_logit_softcapping=r.choice([50.0, 5.0, 1.5, None]),
             final_logit_softcapping=r.choice([30.0, 3.0, None, 0.7]), sliding_window=r.window())
    r.rope(c, weights=PLAIN_ROPE)
    if r.chance(0.4):
        c["layer_types"] = r.layer_types(c["num_hidden_layers"], *ATTENTION)
    return "Gemma2ForCausalLM", c


def gemma_ropes(r, c):
    full = r.rope(c, weights=(50, 30, 10, 10, 0))
    c["rope_parameters"] = {
        "full_attention": full,
        "sliding_attention": dict(rope_type="default", rope_theta=r.choice([10000.0, 12345.0]))}


def gemma3(r):
    c, d = r.base(usual="gelu_pytorch_tanh")
    while c["hidden_size"] % c["num_attention_heads"]:
        c, d = r.base(usual="gelu_pytorch_tanh")
    swap(c, "hidden_act", "hidden_activation")
    c.update(head_dim=d, attention_bias=r.chance(0.15), query_pre_attn_scalar=r.choice([d, 256, 15, 168]),
             final_logit_softcapping=r.choice([None, None, 4.0]), attn_logit_softcapping=None,
             sliding_window=r.window())
    gemma_ropes(r, c)
    if r.chance(0.6):
        c["layer_types"] = r.layer_types(c["num_hidden_layers"], *ATTENTION, 0.6)
    else:
        c["sliding_window_pattern"] = r.choice([1, 2, 3, 6])
    return "Gemma3ForCausalLM", c


def gemma3_multimodal(r):
    _, c = gemma3(r)
    c["final_logit_softcapping"] = None  # which this class ignores
    last = c["vocab_size"]
    vision = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, image_size=16,
                  patch_size=4)
    return "Gemma3ForConditionalGeneration", dict(
        text_config=c, vision_config=vision, mm_tokens_per_image=4, boi_token_index=last - 3, eoi_token_index=last - 2,
        image_token_index=last - 1)


def gemma3n(r):
    c, d = r.base(usual="gelu_pytorch_tanh", layers=r.choice([4, 5, 6]))
    layers, vocabulary = c["num_hidden_layers"], c["vocab_size"]
    swap(c, "hidden_act", "hidden_activation")
    shared = r.choice([0, 0, 1, 2, layers // 2])
    types = r.layer_types(layers, *ATTENTION, 0.6)
    if shared:  # every kind of layer has one that makes keys, and no other kind follows
        types[:2] = ATTENTION
    streams = r.choice([2, 3, 4])
    c.update(head_dim=d, attention_bias=r.chance(0.15), sliding_window=r.window(), layer_types=types,
             final_logit_softcapping=r.choice([30.0, 3.0, 1.0]),
             vocab_size_per_layer_input=r.choice([vocabulary, vocabulary - 8]),
             hidden_size_per_layer_input=r.choice([8, 16, 12]), altup_num_inputs=streams,
             altup_active_idx=r.randrange(streams), altup_coef_clip=r.choice([120.0, 0.5]),
             altup_correct_scale=r.chance(0.7), num_kv_shared_layers=shared, laurel_rank=r.choice([4, 8]),
             activation_sparsity_pattern=[r.choice([0.0, 0.0, 0.9, 0.5]) for _ in range(layers)])
    gemma_ropes(r, c)
    if r.chance(0.3):
        c["intermediate_size"] = [c["intermediate_size"]] * layers
    return "Gemma3nForCausalLM", c


def gemma4_rope(r, head_dim):
    """Of one kind of layer; the model states nothing beside it."""
    kind = r.choices(["proportional", "default", "linear", "llama3", "yarn"], [60, 25, 5, 5, 5])[0]
    if kind not in ("proportional", "default"):
        return r.rope({"max_position_embeddings": 256}, weights=[kind == k for k in ("default", "linear", "llama3", "yarn",
                                                                                      "dynamic")])
    rope = dict(rope_type=kind, rope_theta=r.theta())
    if kind == "proportional":
        rope["partial_rotary_factor"] = r.choice([0.25, 0.25, 0.5, 1.0, 0.3, 0.75])
        if r.chance(0.2):
            rope["factor"] = r.choice([2.0, 8.0])
    return rope


def gemma4_dense(r):
    c, d = r.base(usual="gelu_pytorch_tanh", layers=r.choice([2, 3, 4, 5, 6]))
    layers, heads = c["num_hidden_layers"], c["num_attention_heads"]
    swap(c, "hidden_act", "hidden_activation")
    types = r.layer_types(layers, *ATTENTION, 0.6)
    shared = r.choice([0, 0, 1, 2, 3])
    if layers - shared < 2:
        shared = 0
    if shared:  # every kind of layer has one that makes keys, and no other kind follows
        types[:2] = ATTENTION
    c.update(head_dim=d, global_head_dim=r.choice([d, 2 * d, 16, 24]), attention_bias=r.chance(0.15),
             sliding_window=r.window(), layer_types=types, num_kv_shared_layers=shared,
             use_double_wide_mlp=r.chance(0.5), attention_k_eq_v=r.chance(0.4),
             final_logit_softcapping=r.choice([30.0, 3.0, None, 1.0]),
             use_bidirectional_attention=r.choice([None, "vision"]),
             rope_parameters={"full_attention": gemma4_rope(r, d),
                              "sliding_attention": dict(rope_type="default", rope_theta=r.theta())})
    if r.chance(0.6):
        c["num_global_key_value_heads"] = r.choice(divisors(heads))
    if r.chance(0.2):
        c["rope_parameters"]["sliding_attention"] = gemma4_rope(r, d)
    return c


def gemma4_text(r):
    c = gemma4_dense(r)
    c.update(hidden_size_per_layer_input=r.choice([0, 8, 12, 16]), vocab_size_per_layer_input=c["vocab_size"])
    if r.chance(0.35):
        experts = r.choice([2, 3, 4, 6, 8])
        c.update(enable_moe_block=True, num_experts=experts, top_k_experts=r.randint(1, experts),
                 moe_intermediate_size=r.choice([16, 24, 33]))
        if c["hidden_activation"] == "relu2":
            c["hidden_activation"] = "gelu"
    return c


def gemma4(r):
    return "Gemma4ForCausalLM", gemma4_text(r)


def gemma4_multimodal(r):
    if r.chance(0.5):
        return "Gemma4UnifiedForConditionalGeneration", dict(text_config=gemma4_dense(r), vision_config=None,
                                                             audio_config=None)
    vision = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
                  num_key_value_heads=2, head_dim=8, position_embedding_size=16, patch_size=4)
    return "Gemma4ForConditionalGeneration", dict(text_config=gemma4_text(r), vision_config=vision, audio_config=None)


# ---------------------------------------------------------------- GLM, Cohere and families with layer norms
def glm(r):
    c, d = r.base()
    c.update(head_dim=d, attention_bias=r.chance(0.6))
    r.partial_rope(c, d, 0.5, 0.5, 0.25, 1.0, weights=MOSTLY_PLAIN)
    return "GlmForCausalLM", c


def glm4(r):
    _, c = glm(r)
    return "Glm4ForCausalLM", c


def layer_norm(c):
    swap(c, "rms_norm_eps", "layer_norm_eps")


def cohere(r):
    c, d = r.base(own_head_dim=False, states_head_dim=False)
    layer_norm(c)
    c.update(attention_bias=r.chance(0.3), logit_scale=r.choice([0.0625, 1.0, 0.25, 2.5]), use_qk_norm=r.chance(0.5))
    r.rope(c)
    return "CohereForCausalLM", c


def cohere2(r):
    c, d = r.base(own_head_dim=r.chance(0.5))
    layer_norm(c)
    c.update(attention_bias=r.chance(0.3), logit_scale=r.choice([0.0625, 1.0, 0.25, 2.5]), sliding_window=r.window())
    r.rope(c)
    if r.chance(0.6):
        c["layer_types"] = r.layer_types(c["num_hidden_layers"], *ATTENTION)
    else:
        c["sliding_window_pattern"] = r.choice([1, 2, 3, 4])
    return "Cohere2ForCausalLM", c


def gpt_neox(r):
    c, d = r.base(own_head_dim=False, states_head_dim=False, usual="gelu")
    layer_norm(c)
    without(c, "num_key_value_heads")
    c.update(use_parallel_residual=r.chance(0.6), attention_bias=r.chance(0.7))
    r.partial_rope(c, d, 0.25, 0.5, 1.0, weights=MOSTLY_PLAIN)
    return "GPTNeoXForCausalLM", c


def nemotron(r):
    c, d = r.base(usual="relu2")
    swap(c, "rms_norm_eps", "norm_eps")
    c.update(head_dim=d, attention_bias=r.chance(0.3), mlp_bias=r.chance(0.3))
    r.partial_rope(c, d, 0.5, 0.5, 0.25, 1.0, weights=MOSTLY_PLAIN)
    return "NemotronForCausalLM", c


def phi(r):
    c, d = r.base(own_head_dim=False, states_head_dim=False, usual="gelu_new")
    layer_norm(c)
    c["qk_layernorm"] = r.chance(0.4)
    r.partial_rope(c, d, 0.5, 0.5, 0.25, 1.0, weights=MOSTLY_PLAIN)
    return "PhiForCausalLM", c


def stablelm(r):
    c, d = r.base(own_head_dim=False, states_head_dim=False)
    layer_norm(c)
    c.update(use_qkv_bias=r.chance(0.5), qk_layernorm=r.chance(0.4), use_parallel_residual=r.chance(0.4))
    r.partial_rope(c, d, 0.25, 0.25, 0.5, 1.0, weights=MOSTLY_PLAIN)
    return "StableLmForCausalLM", c


def starcoder2(r):
    c, d = r.base(own_head_dim=False, states_head_dim=False, usual="gelu_pytorch_tanh")
    swap(c, "rms_norm_eps", "norm_epsilon")
    c.update(use_bias=r.chance(0.7), sliding_window=r.choice([None, r.window()]))
    r.rope(c)
    return "Starcoder2ForCausalLM", c


# ---------------------------------------------------------------- recurrent layers
def granitemoe(r):
    c, d = r.base(own_head_dim=False)
    granite_scalars(r, c, d)
    r.experts(c, names=("num_local_experts", "num_experts_per_tok"))
    c["attention_bias"] = r.chance(0.3)
    r.rope(c)
    return "GraniteMoeForCausalLM", c


def granitemoehybrid(r):
    c, d = r.base(own_head_dim=False, states_head_dim=False)
    granite_scalars(r, c, d)
    c["hidden_act"] = "silu"
    inner, experts = 2 * c["hidden_size"], r.choice([0, 0, 2, 4, 8])
    heads = r.choice([n for n in (2, 4, 6, 8) if inner % n == 0])
    c.update(num_local_experts=experts, num_experts_per_tok=r.randint(1, experts) if experts else 0,
             shared_intermediate_size=r.choice([24, 40, 56]), position_embedding_type=r.choice([None, "nope", "rope"]),
             layer_types=r.layer_types(c["num_hidden_layers"], "linear_attention", "full_attention", 0.6),
             mamba_n_heads=heads, mamba_n_groups=r.choice([1, 1] + divisors(heads)), mamba_d_state=r.choice([8, 16, 24]),
             mamba_d_head=r.choice(["auto", inner // heads]), mamba_d_conv=r.choice([2, 3, 4]), mamba_expand=2,
             mamba_chunk_size=r.choice([4, 8, 16, 256]), mamba_conv_bias=r.chance(0.7), mamba_proj_bias=r.chance(0.3),
             attention_bias=r.chance(0.3))
    if r.chance(0.1):
        c["time_step_limit"] = r.choice([[0.0, 0.5], [0.05, 2.0]])
    r.rope(c, head_dim=d)
    return "GraniteMoeHybridForCausalLM", c


def convolutions(r):
    c, d = r.base(own_head_dim=False, states_head_dim=False)
    without(c, "hidden_act")
    swap(c, "rms_norm_eps", "norm_eps")
    c.update(conv_bias=r.chance(0.4), conv_L_cache=r.choice([2, 3, 3, 4, 5]),
             layer_types=r.layer_types(c["num_hidden_layers"], "conv", "full_attention", 0.6))
    r.rope(c, weights=PLAIN_ROPE)
    return c


def lfm2(r):
    c = convolutions(r)
    c.update(intermediate_size=r.choice([48, 96, 150, 100]), block_multiple_of=r.choice([8, 16, 256]),
             block_ffn_dim_multiplier=r.choice([1.0, 1.3, 0.7]), block_auto_adjust_ff_dim=r.chance(0.7))
    return "Lfm2ForCausalLM", c


def lfm2_moe(r):
    c = convolutions(r)
    r.experts(c)
    without(c, "hidden_act")
    c.update(num_dense_layers=r.choice([0, 1, 2]), use_expert_bias=r.chance(0.7), norm_topk_prob=r.chance(0.6),
             routed_scaling_factor=r.choice([1.0, 2.5]), moe_intermediate_size=r.choice([16, 24, 40]))
    return "Lfm2MoeForCausalLM", c


# ---------------------------------------------------------------- experts and latent attention
def routed(r, c):
    c.update(hidden_act="silu", n_routed_experts=r.choice([4, 8]), n_shared_experts=r.choice([1, 2]),
             moe_intermediate_size=r.choice([16, 24]), first_k_dense_replace=r.choice([0, 1, 2]),
             routed_scaling_factor=r.choice([1.0, 2.5]), norm_topk_prob=r.chance(0.5))


def latent_attention(r):
    c, _ = r.base(own_head_dim=False, states_head_dim=False)
    routed(r, c)
    turned = r.choice([4, 8, 16])
    c.update(num_key_value_heads=c["num_attention_heads"], q_lora_rank=r.choice([None, 16, 24]),
             kv_lora_rank=r.choice([16, 24]), qk_nope_head_dim=r.choice([8, 12, 16]), qk_rope_head_dim=turned,
             v_head_dim=r.choice([8, 12, 16]), attention_bias=r.chance(0.3))
    rope = r.rope(c, weights=(45, 5, 5, 45, 0))
    if rope["rope_type"] == "yarn":
        rope.update(mscale=r.choice([1.0, 0.707]), mscale_all_dim=r.choice([1.0, 0.707, 0.5, 0]))
    return c


def deepseek_v2(r):
    c = latent_attention(r)
    without(c, "norm_topk_prob")
    c.update(topk_method="greedy", num_experts_per_tok=r.randint(1, 3))
    if r.chance(0.5):
        c.update(topk_method="group_limited_greedy", n_group=2, topk_group=r.choice([1, 2]),
                 num_experts_per_tok=r.randint(1, 2))
    return "DeepseekV2ForCausalLM", c


def deepseek_v3(r):
    c = latent_attention(r)
    groups = r.choice([n for n in (1, 2, 4) if c["n_routed_experts"] // n >= 2])
    c.update(n_group=groups, topk_group=r.randint(1, groups), num_experts_per_tok=r.randint(1, 2),
             rope_interleave=r.chance(0.7))
    return "DeepseekV3ForCausalLM", c


def glm4_moe(r):
    c, d = r.base()
    routed(r, c)
    groups = r.choice([1, 1, 2])
    c.update(head_dim=d, num_experts_per_tok=r.randint(1, 2), n_group=groups, topk_group=r.randint(1, groups),
             use_qk_norm=r.chance(0.5), attention_bias=r.chance(0.5))
    r.partial_rope(c, d, 0.5, 0.5, 1.0, weights=MOSTLY_PLAIN)
    return "Glm4MoeForCausalLM", c


def gpt_oss(r):
    c, d = r.base()
    r.experts(c, names=("num_local_experts", "num_experts_per_tok"))
    c.update(head_dim=d, intermediate_size=r.choice([24, 32, 48]), sliding_window=r.window(),
             attention_bias=r.chance(0.8))
    rope = r.rope(c, weights=(20, 5, 5, 70, 0))
    if rope["rope_type"] == "yarn":
        rope["truncate"] = r.choice([False, False, True])
    if r.chance(0.25):
        c["swiglu_limit"] = r.choice([1.5, 3.0])
    if r.chance(0.25):
        c["swiglu_alpha"] = r.choice([1.0, 2.0])
    if r.chance(0.6):
        c["layer_types"] = r.layer_types(c["num_hidden_layers"], *ATTENTION)
    return "GptOssForCausalLM", c


def mixtral(r):
    c, d = r.base()
    r.experts(c, names=("num_local_experts", "num_experts_per_tok"))
    c.update(sliding_window=r.choice([None, r.window()]), router_jitter_noise=r.choice([0.0, 0.01]))
    r.rope(c)
    return "MixtralForCausalLM", c


def olmoe(r):
    c, d = r.base(own_head_dim=False, states_head_dim=False)
    r.experts(c)
    c.update(norm_topk_prob=r.chance(0.5), clip_qkv=r.choice([None, None, 1.0, 0.3]), attention_bias=r.chance(0.3))
    r.rope(c)
    return "OlmoeForCausalLM", c


# ---------------------------------------------------------------- encoders
def encoder(r):
    """Attention in both directions, or a causal decoder whose states are wanted."""
    if r.chance(0.35):
        _, c = gemma3(r)
        c.update(use_bidirectional_attention=True, final_logit_softcapping=None)
        return "Gemma3TextModel", c
    name, model = r.choice([("llama", "LlamaModel"), ("mistral", "MistralModel"), ("qwen2", "Qwen2Model"),
                            ("qwen3", "Qwen3Model"), ("gemma2", "Gemma2Model"), ("granite", "GraniteModel"),
                            ("olmo3", "Olmo3Model"), ("phi3", "Phi3Model"), ("smollm3", "SmolLM3Model"), ("opt", "OPTModel")])
    _, c = FAMILIES[name](r)
    if c.get("rope_parameters", {}).get("rope_type") == "longrope":
        r.rope(c, weights=PLAIN_ROPE)
    if r.chance(0.7):
        c["is_causal"] = False
    return model, c


FAMILIES = dict(
    LLAMA_LIKE, gemma=gemma, gemma2=gemma2, gemma3=gemma3, gemma3_multimodal=gemma3_multimodal, gemma3n=gemma3n,
    gemma4=gemma4, gemma4_multimodal=gemma4_multimodal,
    glm=glm, glm4=glm4, cohere=cohere, cohere2=cohere2, gpt_neox=gpt_neox, nemotron=nemotron, phi=phi,
    stablelm=stablelm, starcoder2=starcoder2, granitemoe=granitemoe, granitemoehybrid=granitemoehybrid, lfm2=lfm2,
    lfm2_moe=lfm2_moe, deepseek_v2=deepseek_v2, deepseek_v3=deepseek_v3, glm4_moe=glm4_moe, gpt_oss=gpt_oss,
    mixtral=mixtral, olmoe=olmoe, encoder=encoder, **ENCODERS, **GPT_LIKE, **MORE, **HYBRIDS, **RECENT, **NEWEST)
FAMILIES.update(classifier_families.classifiers(FAMILIES))
