"""Random configurations of families that came later, as llama_families.py has them."""
from draw import ATTENTION, PLAIN_ROPE, swap, without
from expert_families import MOSTLY_PLAIN, latent


def afmoe(r):
    c, d = r.base()
    r.experts(c)
    c.update(head_dim=d, moe_intermediate_size=r.choice([16, 24]), num_dense_layers=r.choice([0, 1, 2]),
             num_shared_experts=r.choice([0, 1, 2]), route_scale=r.choice([1.0, 2.5]), attention_bias=r.chance(0.3),
             mup_enabled=r.chance(0.5), sliding_window=r.window())
    if r.chance(0.5):
        c["layer_types"] = r.layer_types(c["num_hidden_layers"], *ATTENTION)
    else:
        c["global_attn_every_n_layers"] = r.choice([1, 2, 3, 4])
    r.rope(c)
    return "AfmoeForCausalLM", c


def minicpm3(r):
    c, _ = r.base(own_head_dim=False, states_head_dim=False)
    latent(r, c)
    without(c, "rope_interleave")
    c.update(v_head_dim=r.choice([8, 12, 16, None]), scale_emb=r.choice([1, 12, 3.5]), scale_depth=r.choice([1.4, 0.7, None]),
             dim_model_base=r.choice([16, 256, None]), mlp_bias=r.chance(0.2))
    if r.chance(0.3):
        pairs = c["qk_rope_head_dim"] // 2
        original = r.choice([64, 128])
        c["max_position_embeddings"] = original * r.choice([1, 1, 2])
        c["rope_parameters"] = dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=original,
                                    short_factor=[round(r.uniform(1, 1.5), 3) for _ in range(pairs)],
                                    long_factor=[round(r.uniform(1, 20), 3) for _ in range(pairs)])
    return "MiniCPM3ForCausalLM", c


def cohere2_moe(r):
    c, d = r.base()
    layers = c["num_hidden_layers"]
    r.experts(c)
    c.update(head_dim=d, sliding_window=r.window(), attention_bias=r.chance(0.3), logit_scale=r.choice([0.0625, 1.0, 0.3]),
             num_shared_experts=r.choice([0, 1, 2]), shared_expert_combination_strategy=r.choice(["average", "sum"]),
             expert_selection_fn=r.choice(["softmax", "sigmoid"]), norm_topk_prob=r.chance(0.5),
             prefix_dense_intermediate_size=r.choice([None, 40]), prefix_dense_sliding_window_pattern=r.choice([1, 1, 2]))
    if r.chance(0.5):
        swap(c, "rms_norm_eps", "layer_norm_eps")
    if r.chance(0.4):
        c["layer_types"] = r.layer_types(layers, *ATTENTION)
    else:
        c["sliding_window_pattern"] = r.choice([1, 2, 3, 4])
    if r.chance(0.5):
        c["first_k_dense_replace"] = r.choice([0, 1, 2])
        c["first_k_dense_replace"] = min(c["first_k_dense_replace"], layers)
    else:
        c["mlp_layer_types"] = r.layer_types(layers, "sparse", "dense", 0.7)
    r.rope(c, weights=MOSTLY_PLAIN, head_dim=d)
    return "Cohere2MoeForCausalLM", c


def phimoe(r):
    c, d = r.base(own_head_dim=False, states_head_dim=False)
    r.experts(c, names=("num_local_experts", "num_experts_per_tok"))
    c.update(num_experts_per_tok=r.choice([1, 2, 2]), attention_bias=r.chance(0.4), lm_head_bias=r.chance(0.4), sliding_window=r.choice([None, r.window()]),
             router_jitter_noise=r.choice([0.01, 0.1, 0.4, 0.0]))
    original = c["max_position_embeddings"]
    rope = r.rope(c, weights=(50, 10, 10, 10, 0))
    if r.chance(0.4):
        rope = c["rope_parameters"] = dict(rope_type="longrope", rope_theta=r.theta(),
                                           short_factor=[round(r.uniform(1, 1.5), 3) for _ in range(d // 2)],
                                           long_factor=[round(r.uniform(1, 20), 3) for _ in range(d // 2)])
    if rope["rope_type"] != "default":
        mscale = r.choice([1.0, 1.243163121016122])
        rope.update(short_mscale=mscale, long_mscale=mscale, original_max_position_embeddings=original // r.choice([1, 2]))
    return "PhimoeForCausalLM", c


def xglm(r):
    head_dim, heads = r.choice([8, 12, 16]), r.choice([1, 2, 3, 4])
    pad = r.choice([1, 0, 3, 12, None])
    return "XGLMForCausalLM", dict(
        vocab_size=r.choice([101, 200]), d_model=head_dim * heads, attention_heads=heads, num_layers=r.choice([1, 2, 3]),
        ffn_dim=r.choice([72, 40]), max_position_embeddings=r.choice([128, 256]), activation_function=r.activation("gelu"),
        scale_embedding=r.chance(0.6), tie_word_embeddings=r.chance(0.6), bos_token_id=1, eos_token_id=2, pad_token_id=pad)


def bitnet(r):
    c, _ = r.base(own_head_dim=False, usual="relu2")
    c["attention_bias"] = r.chance(0.3)
    r.rope(c)
    return "BitNetForCausalLM", c


def llama4_text(r):
    c, d = r.base()
    layers = c["num_hidden_layers"]
    r.experts(c, names=("num_local_experts", "num_experts_per_tok"))
    c.update(head_dim=d, intermediate_size=r.choice([16, 24, 33]), intermediate_size_mlp=r.choice([48, 72]),
             use_qk_norm=r.chance(0.6), attention_chunk_size=r.window(), attn_temperature_tuning=r.chance(0.7),
             floor_scale=r.choice([1, 3, 8, 16, 8192]), attn_scale=r.choice([0.1, 0.5, 0.07, 2.0]), attention_bias=r.chance(0.3))
    if r.chance(0.4):
        c["moe_layers"] = [layer for layer in range(layers + 1) if r.chance(0.6)]
    elif r.chance(0.7):
        c["interleave_moe_layer_step"] = r.choice([1, 2, 2, 3])
    if r.chance(0.4):
        c["no_rope_layers"] = [r.choice([0, 1]) for _ in range(layers)]
    elif r.chance(0.7):
        c["no_rope_layer_interval"] = r.choice([1, 2, 2, 3, 4])
    if r.chance(0.3):
        c["no_rope_layers"] = c.get("no_rope_layers", [])
        c["layer_types"] = r.layer_types(layers, "chunked_attention", "full_attention")
    r.rope(c)
    if r.chance(0.2):  # as Scout has it: no frequency lies between the two factors
        c["rope_parameters"] = dict(rope_type="llama3", rope_theta=500000.0, factor=r.choice([8.0, 16.0]), high_freq_factor=1.0,
                                    low_freq_factor=1.0, original_max_position_embeddings=r.choice([16, 64]))
    return "Llama4ForCausalLM", c


def llama4(r):
    _, text = llama4_text(r)
    vision = dict(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, projector_input_dim=16,
                  projector_output_dim=16, vision_output_dim=16, image_size=28, patch_size=14)
    return "Llama4ForConditionalGeneration", dict(text_config=text, vision_config=vision, tie_word_embeddings=r.chance(0.3))


def recurrent_gemma(r):
    c, _ = r.base(usual="gelu_pytorch_tanh", states_head_dim=False, own_head_dim=False)
    without(c, "max_position_embeddings")
    swap(c, "hidden_act", "hidden_activation")
    heads = c["num_attention_heads"]
    c.update(attention_window_size=r.window(), logits_soft_cap=r.choice([30.0, 5.0, 2.5]), attention_bias=r.chance(0.3),
             lru_width=r.choice([None, None, heads * r.choice([8, 12, 20])]), conv1d_width=r.choice([2, 3, 4, 4, 6]))
    if r.chance(0.6):
        c["block_types"] = [r.choice(["recurrent", "attention"]) for _ in range(r.randint(1, 4))]
    if r.chance(0.6):
        c["rope_parameters"] = dict(rope_type="default", rope_theta=r.theta(), partial_rotary_factor=r.choice([0.5, 0.5, 1.0]))
    return "RecurrentGemmaForCausalLM", c


RECENT = dict(afmoe=afmoe, bitnet=bitnet, cohere2_moe=cohere2_moe, llama4=llama4, llama4_text=llama4_text, minicpm3=minicpm3,
              phimoe=phimoe, recurrent_gemma=recurrent_gemma, xglm=xglm)
