"""Random configurations of Llama, Qwen and the families that resemble them.

LLAMA_LIKE has a function for each name. It takes a Draw and returns the name of the model's class
and the arguments of its configuration class in transformers 5.23. Sizes are tiny; everything else is
what a config may say.
"""
from draw import ATTENTION, PLAIN_ROPE, without


# ---------------------------------------------------------------- Llama and what resembles it
def llama(r):
    c, d = r.base()
    c.update(attention_bias=r.chance(0.3), mlp_bias=r.chance(0.2))
    r.rope(c)
    return "LlamaForCausalLM", c


def arcee(r):
    c, d = r.base(usual="relu2")
    c.update(attention_bias=r.chance(0.3), mlp_bias=r.chance(0.3))
    r.rope(c)
    return "ArceeForCausalLM", c


def mistral(r):
    c, d = r.base()
    c["sliding_window"] = r.choice([None, r.window(), r.window()])
    r.rope(c)
    return "MistralForCausalLM", c


def mistral3(r):
    _, c = ministral3(r) if r.chance(0.5) else mistral(r)
    c["model_type"] = "ministral3" if "llama_4_scaling_beta" in c["rope_parameters"] else "mistral"
    vision = dict(model_type="pixtral", hidden_size=16, intermediate_size=24, num_hidden_layers=1,
                  num_attention_heads=2, image_size=16, patch_size=4, head_dim=8)
    return "Mistral3ForConditionalGeneration", dict(
        text_config=c, vision_config=vision, image_token_index=c["vocab_size"] - 1,
        tie_word_embeddings=c["tie_word_embeddings"])


def ministral(r):
    c, d = r.base()
    c["sliding_window"] = r.choice([None, r.window(), r.window()])
    if c["sliding_window"] and r.chance(0.6):
        c["layer_types"] = r.layer_types(c["num_hidden_layers"], *ATTENTION)
    r.rope(c)
    return "MinistralForCausalLM", c


def ministral3(r):
    c, d = r.base()
    rope = r.rope(c, weights=(25, 5, 10, 60, 0))
    rope.setdefault("original_max_position_embeddings", r.choice([8, 16, 32, 64]))
    rope["llama_4_scaling_beta"] = r.choice([0.1, 0.1, 0.5, 0.0])
    if rope["rope_type"] == "yarn" and r.chance(0.5):
        rope.update(mscale=1.0, mscale_all_dim=r.choice([1.0, 0.7]))
    c["sliding_window"] = r.choice([None, None, r.window()])
    return "Ministral3ForCausalLM", c


def cwm(r):
    c, d = r.base()
    c.update(sliding_window=r.window(), mlp_bias=r.chance(0.2))
    r.rope(c, weights=(20, 10, 60, 10, 0))
    if r.chance(0.6):
        c["layer_types"] = r.layer_types(c["num_hidden_layers"], *ATTENTION)
    return "CwmForCausalLM", c


def ernie4_5(r):
    c, d = r.base()
    c["use_bias"] = r.chance(0.4)
    r.rope(c)
    return "Ernie4_5ForCausalLM", c


def exaone4(r):
    c, d = r.base(own_head_dim=r.chance(0.5))
    c["sliding_window"] = r.choice([None, r.window(), r.window()])
    r.rope(c)
    if c["sliding_window"] is None:
        c["sliding_window_pattern"] = r.choice([None, 0, 4])
    elif r.chance(0.5):
        c["layer_types"] = r.layer_types(c["num_hidden_layers"], *ATTENTION)
    else:
        c["sliding_window_pattern"] = r.choice([1, 2, 3, 4, "LLLG", "LG"])
    return "Exaone4ForCausalLM", c


def granite_scalars(r, c, d):
    c.update(embedding_multiplier=r.choice([1.0, 12.0, 3, 6.5]), logits_scaling=r.choice([1.0, 8.0, 0.5, 16]),
             residual_multiplier=r.choice([1.0, 0.22, 0.9]), attention_multiplier=r.choice([1.0, 0.015625, 0.2, 1 / d]))


def granite(r):
    c, d = r.base(own_head_dim=False)
    granite_scalars(r, c, d)
    c.update(attention_bias=r.chance(0.3), mlp_bias=r.chance(0.2))
    r.rope(c)
    return "GraniteForCausalLM", c


def helium(r):
    c, d = r.base(own_head_dim=False)
    c.update(head_dim=d, attention_bias=r.chance(0.3), mlp_bias=r.chance(0.3))
    r.rope(c)
    return "HeliumForCausalLM", c


def hunyuan_v1_dense(r):
    c, d = r.base()
    c.update(head_dim=d, attention_bias=r.chance(0.3))
    r.rope(c)
    if r.chance(0.4):
        c["rope_parameters"] = dict(rope_type="dynamic", rope_theta=10000.0, alpha=r.choice([1000.0, 50.0, 2.0]),
                                    factor=1.0, beta_fast=32, beta_slow=1, mscale=1.0, mscale_all_dim=1.0)
    return "HunYuanDenseV1ForCausalLM", c


def olmo2(r):
    c, d = r.base(own_head_dim=False)
    c["attention_bias"] = r.chance(0.3)
    r.rope(c)
    return "Olmo2ForCausalLM", c


def olmo3(r):
    c, d = r.base(own_head_dim=False)
    c.update(attention_bias=r.chance(0.3), sliding_window=r.window())
    full = r.rope(c, weights=(45, 10, 10, 35, 0))
    c["rope_parameters"] = {"full_attention": full,
                            "sliding_attention": dict(rope_type="default", rope_theta=r.theta())}
    if r.chance(0.6):
        c["layer_types"] = r.layer_types(c["num_hidden_layers"], *ATTENTION)
    return "Olmo3ForCausalLM", c


def phi3(r):
    c, d = r.base(own_head_dim=False, states_head_dim=False)
    part = r.partial(d, 1.0, 1.0, 0.75, 0.5)
    c.update(sliding_window=r.choice([None, r.window(), 2047]),
             original_max_position_embeddings=c["max_position_embeddings"])
    rope = dict(rope_type="default", rope_theta=r.theta(), partial_rotary_factor=part)
    if r.chance(0.5):
        pairs, original = int(d * part) // 2, r.choice([16, 24, 33, 48, 64])
        c.update(max_position_embeddings=max(original * r.choice([1, 2, 4, 32]), 128),
                 original_max_position_embeddings=original)
        rope.update(rope_type="longrope", original_max_position_embeddings=original,
                    short_factor=[round(r.uniform(1, 1.5), 3) for _ in range(pairs)],
                    long_factor=[round(r.uniform(1, 20), 3) for _ in range(pairs)])
        rope.update(r.choice([{}, {}, dict(attention_factor=1.19), dict(factor=4.0)]))
    c["rope_parameters"] = rope
    return "Phi3ForCausalLM", c


def seed_oss(r):
    c, d = r.base()
    c.update(attention_bias=r.chance(0.6), attention_out_bias=r.chance(0.4), mlp_bias=r.chance(0.3),
             attention_dropout=0.1, residual_dropout=0.1)
    r.rope(c)
    return "SeedOssForCausalLM", c


def smollm3(r):
    c, d = r.base(own_head_dim=False)
    layers = c["num_hidden_layers"]
    c.update(attention_bias=r.chance(0.3), mlp_bias=r.chance(0.2))
    r.rope(c)
    if r.chance(0.5):
        c["no_rope_layers"] = [r.randint(0, 1) for _ in range(layers)]
    else:
        c["no_rope_layer_interval"] = r.choice([1, 2, 3, 4])
    if r.chance(0.4):
        c.update(use_sliding_window=True, sliding_window=r.window())
        if r.chance(0.4):
            c["layer_types"] = r.layer_types(layers, *ATTENTION)
    return "SmolLM3ForCausalLM", c


# ---------------------------------------------------------------- Qwen
def qwen_windows(r, c):
    layers = c["num_hidden_layers"]
    c.update(use_sliding_window=r.chance(0.6), sliding_window=r.window(),
             max_window_layers=r.choice([0, 1, layers - 1, layers, 28]))
    if c["use_sliding_window"] and r.chance(0.3):
        c["layer_types"] = r.layer_types(layers, *ATTENTION)


def qwen2(r):
    c, d = r.base(own_head_dim=False, states_head_dim=False)
    qwen_windows(r, c)
    r.rope(c)
    return "Qwen2ForCausalLM", c


def qwen3(r):
    c, d = r.base()
    qwen_windows(r, c)
    c["attention_bias"] = r.chance(0.3)
    r.rope(c)
    return "Qwen3ForCausalLM", c


def qwen_experts(r, c, shared=False):
    r.experts(c)
    c.update(moe_intermediate_size=r.choice([16, 24, 40]), norm_topk_prob=r.chance(0.5))
    if shared:
        c["shared_expert_intermediate_size"] = r.choice([16, 28, 40])


def qwen_sparse_layers(r, c):
    layers = c["num_hidden_layers"]
    c.update(decoder_sparse_step=r.choice([1, 1, 1, 2, 3]), mlp_only_layers=r.choice([[], [], [0], [layers - 1]]))


def qwen2_moe(r):
    c, d = r.base(own_head_dim=False, states_head_dim=False)
    qwen_experts(r, c, shared=True)
    qwen_sparse_layers(r, c)
    c.update(qkv_bias=r.chance(0.7), use_sliding_window=r.chance(0.4), sliding_window=r.window(),
             max_window_layers=r.choice([0, 1, c["num_hidden_layers"]]))
    r.rope(c)
    return "Qwen2MoeForCausalLM", c


def qwen3_moe(r):
    c, d = r.base()
    qwen_experts(r, c)
    qwen_sparse_layers(r, c)
    c.update(attention_bias=r.chance(0.2), use_sliding_window=r.chance(0.3), sliding_window=r.window(),
             max_window_layers=r.choice([0, 1, c["num_hidden_layers"]]))
    r.rope(c)
    return "Qwen3MoeForCausalLM", c


def linear_attention(r, c):
    """The layers of Qwen3-Next and Qwen3.5; returns the size of a head and the part that turns."""
    layers = c["num_hidden_layers"] = r.choice([2, 3, 4])
    head_dim, key_heads = r.choice([16, 24, 32]), r.choice([1, 2, 3])
    c.update(head_dim=head_dim, attention_bias=r.chance(0.2), rms_norm_eps=r.choice([1e-6, 1e-5]),
             linear_num_key_heads=key_heads, linear_num_value_heads=key_heads * r.choice([1, 2, 3]),
             linear_key_head_dim=r.choice([8, 12, 16]), linear_value_head_dim=r.choice([8, 16, 20]),
             linear_conv_kernel_dim=r.choice([2, 3, 4, 4]))
    if r.chance(0.5):
        c["full_attention_interval"] = r.choice([2, 3, 4])
    else:
        c["layer_types"] = r.layer_types(layers, "linear_attention", "full_attention", 0.6)
    part = r.partial(head_dim, 0.25, 0.25, 0.5, 1.0)
    r.rope(c, part, (70, 15, 0, 15, 0))
    return head_dim, part


def qwen3_next(r):
    c, _ = r.base()
    linear_attention(r, c)
    qwen_experts(r, c, shared=True)
    c.update(decoder_sparse_step=r.choice([1, 1, 2]),
             mlp_only_layers=r.choice([[], [], [0], list(range(c["num_hidden_layers"]))]))
    if c["mlp_only_layers"] == list(range(c["num_hidden_layers"])):
        c["hidden_act"] = r.activation("silu")
    return "Qwen3NextForCausalLM", c


def mrope(c, head_dim, part=1.0):
    pairs = int(head_dim * part) // 2
    c["rope_parameters"].update(mrope_interleaved=True, mrope_section=[pairs - 2 * (pairs // 3), pairs // 3, pairs // 3])


def qwen3_5(r):
    c, _ = r.base()
    mrope(c, *linear_attention(r, c))
    return "Qwen3_5ForCausalLM", c


def qwen3_5_moe(r):
    c, _ = r.base()
    mrope(c, *linear_attention(r, c))
    qwen_experts(r, c, shared=True)
    without(c, "intermediate_size", "norm_topk_prob")
    return "Qwen3_5MoeForCausalLM", c


def with_vision(r, text, cls, **vision):
    last = text["vocab_size"]
    tower = dict(depth=1, hidden_size=16, intermediate_size=24, num_heads=2, patch_size=4, spatial_merge_size=2,
                 temporal_patch_size=2)
    tower.update(vision)
    return cls, dict(text_config=text, vision_config=tower, image_token_id=last - 4, video_token_id=last - 3,
                     vision_start_token_id=last - 6, vision_end_token_id=last - 5,
                     tie_word_embeddings=text["tie_word_embeddings"])


def qwen3_5_multimodal(r):
    _, c = qwen3_5(r)
    return with_vision(r, c, "Qwen3_5ForConditionalGeneration", num_position_embeddings=16,
                       out_hidden_size=c["hidden_size"])


def qwen3_5_moe_multimodal(r):
    _, c = qwen3_5_moe(r)
    return with_vision(r, c, "Qwen3_5MoeForConditionalGeneration", num_position_embeddings=16,
                       out_hidden_size=c["hidden_size"])


def qwen3_vl(r):
    c, d = r.base(layers=r.choice([1, 2, 3]))
    c["attention_bias"] = r.chance(0.3)
    r.rope(c, weights=PLAIN_ROPE)
    mrope(c, d)
    return with_vision(r, c, "Qwen3VLForConditionalGeneration", num_position_embeddings=16, deepstack_visual_indexes=[0],
                       out_hidden_size=c["hidden_size"])


def qwen3_vl_moe(r):
    c, d = r.base(layers=r.choice([1, 2, 3]))
    qwen_experts(r, c)
    qwen_sparse_layers(r, c)
    c["attention_bias"] = r.chance(0.3)
    without(c, "norm_topk_prob")
    r.rope(c, weights=PLAIN_ROPE)
    mrope(c, d)
    return with_vision(r, c, "Qwen3VLMoeForConditionalGeneration", num_position_embeddings=16, deepstack_visual_indexes=[0],
                       out_hidden_size=c["hidden_size"])


def qwen2_5_vl(r):
    c, d = r.base(own_head_dim=False, states_head_dim=False)
    qwen_windows(r, c)
    r.rope(c, weights=PLAIN_ROPE)
    c["rope_parameters"]["mrope_section"] = [d // 2 - 2 * (d // 6), d // 6, d // 6]
    if r.chance(0.5):
        cls, outer = with_vision(r, c, "Qwen2VLForConditionalGeneration", hidden_size=c["hidden_size"], embed_dim=16)
        without(outer["vision_config"], "intermediate_size")
        return cls, outer
    return with_vision(r, c, "Qwen2_5_VLForConditionalGeneration", fullatt_block_indexes=[0], window_size=16,
                       out_hidden_size=c["hidden_size"])


LLAMA_LIKE = dict(
    llama=llama, arcee=arcee, mistral=mistral, mistral3=mistral3, ministral=ministral, ministral3=ministral3, cwm=cwm,
    ernie4_5=ernie4_5, exaone4=exaone4, granite=granite, helium=helium, hunyuan_v1_dense=hunyuan_v1_dense, olmo2=olmo2,
    olmo3=olmo3, phi3=phi3, seed_oss=seed_oss, smollm3=smollm3, qwen2=qwen2, qwen3=qwen3, qwen2_moe=qwen2_moe,
    qwen3_moe=qwen3_moe, qwen3_next=qwen3_next, qwen3_5=qwen3_5, qwen3_5_moe=qwen3_5_moe,
    qwen3_5_multimodal=qwen3_5_multimodal, qwen3_5_moe_multimodal=qwen3_5_moe_multimodal, qwen3_vl=qwen3_vl,
    qwen3_vl_moe=qwen3_vl_moe, qwen2_5_vl=qwen2_5_vl)
