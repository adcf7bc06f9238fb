"""Random configurations of the families that came before Llama, as llama_families.py has them."""
from draw import PLAIN_ROPE, swap, without

USUAL = dict(bos_token_id=1, eos_token_id=2)


def gpt_sizes(r):
    head_dim, heads = r.choice([8, 12, 16, 20]), r.choice([1, 2, 3, 4])
    return head_dim, heads, dict(
        vocab_size=r.choice([101, 200, 320]), n_embd=head_dim * heads, n_head=heads, n_layer=r.choice([1, 2, 3]),
        n_positions=r.choice([128, 256]), n_inner=r.choice([None, 72, 40]), activation_function=r.activation("gelu_new"),
        layer_norm_epsilon=r.choice([1e-5, 1e-3]), **USUAL)


def gpt2(r):
    _, _, c = gpt_sizes(r)
    c.update(scale_attn_weights=r.chance(0.8), scale_attn_by_inverse_layer_idx=r.chance(0.3),
             reorder_and_upcast_attn=r.chance(0.3), tie_word_embeddings=r.chance(0.7))
    return "GPT2LMHeadModel", c


def gpt_bigcode(r):
    _, _, c = gpt_sizes(r)
    c.update(scale_attn_weights=r.chance(0.8), multi_query=r.chance(0.6), attention_softmax_in_fp32=r.chance(0.7),
             scale_attention_softmax_in_fp32=r.chance(0.7), tie_word_embeddings=r.chance(0.7))
    return "GPTBigCodeForCausalLM", c


def turned(r, c, head_dim):
    c.update(rotary_dim=r.choice([n for n in (4, 8, 12) if n <= head_dim]), tie_word_embeddings=r.chance(0.2))


def gptj(r):
    head_dim, _, c = gpt_sizes(r)
    turned(r, c, head_dim)
    return "GPTJForCausalLM", c


def codegen(r):
    head_dim, _, c = gpt_sizes(r)
    c.update(n_head=4, n_embd=4 * head_dim, n_ctx=128)
    turned(r, c, head_dim)
    return "CodeGenForCausalLM", c


def gpt_neo(r):
    head_dim, heads, c = gpt_sizes(r)
    without(c, "n_embd", "n_head", "n_layer", "n_positions", "n_inner")
    pattern = r.choice([["global", "local"], ["global"], ["local"], ["local", "local", "global"]])
    count = r.choice([1, 2])
    c.update(hidden_size=head_dim * heads, num_heads=heads, num_layers=count * len(pattern), attention_types=[[pattern, count]],
             window_size=r.window(), max_position_embeddings=r.choice([128, 256]), intermediate_size=r.choice([None, 72, 40]),
             tie_word_embeddings=r.chance(0.7))
    return "GPTNeoForCausalLM", c


def openai_gpt(r):
    _, _, c = gpt_sizes(r)
    without(c, "n_inner", "activation_function")
    c.update(afn=r.choice(["gelu", "gelu", "relu", "silu", "swish"]), tie_word_embeddings=r.chance(0.7))
    return "OpenAIGPTLMHeadModel", c


# ---------------------------------------------------------------- ALiBi
def old_sizes(r, *names):
    """hidden size, heads, layers under the names of the class"""
    head_dim, heads = r.choice([8, 12, 16]), r.choice([1, 2, 3, 4, 6, 7])
    c = dict(zip(names, (head_dim * heads, heads, r.choice([1, 2, 3]))))
    c.update(vocab_size=r.choice([101, 200, 320]), layer_norm_epsilon=r.choice([1e-5, 1e-3]),
             tie_word_embeddings=r.chance(0.7), **USUAL)
    return heads, c


def bloom(r):
    _, c = old_sizes(r, "hidden_size", "n_head", "n_layer")
    c.update(apply_residual_connection_post_layernorm=r.chance(0.3), pretraining_tp=r.choice([1, 1, 4]),
             slow_but_exact=r.chance(0.05))
    if r.chance(0.3):
        c["seq_length"] = 128
    if r.chance(0.2):
        swap(c, "hidden_size", "n_embed")
    return "BloomForCausalLM", c


def mpt(r):
    _, c = old_sizes(r, "d_model", "n_heads", "n_layers")
    attention = dict(clip_qkv=r.choice([None, None, 1.0, 0.3]), softmax_scale=r.choice([None, None, 0.2, 0.5]),
                     alibi=r.chance(0.8), alibi_bias_max=r.choice([8, 8, 4]), qk_ln=r.chance(0.2), prefix_lm=False)
    c.update(max_seq_len=r.choice([128, 256]), no_bias=r.chance(0.8), logit_scale=r.choice([None, None, 0.5]),
             expansion_ratio=r.choice([4, 4, 2]), attn_config=attention)
    if r.chance(0.1):
        c.pop("attn_config")
    return "MptForCausalLM", c


def falcon(r):
    heads, c = old_sizes(r, "hidden_size", "num_attention_heads", "num_hidden_layers")
    newer, alibi = r.chance(0.4), r.chance(0.4)
    c.update(new_decoder_architecture=newer, alibi=alibi, bias=r.chance(0.4), multi_query=r.chance(0.5),
             parallel_attn=newer or r.chance(0.5), ffn_hidden_size=r.choice([None, 72, 40]),
             max_position_embeddings=r.choice([128, 256, 2048]), activation=r.activation("gelu"))
    if newer:
        c.update(num_kv_heads=r.choice([n for n in range(1, heads + 1) if heads % n == 0]),
                 num_ln_in_parallel_attn=r.choice([None, 1, 2]))
    elif r.chance(0.3):
        c["num_ln_in_parallel_attn"] = 1
    r.rope(c, weights=PLAIN_ROPE)
    return "FalconForCausalLM", c


def opt(r):
    head_dim, heads, _ = gpt_sizes(r)
    c = dict(vocab_size=r.choice([101, 200, 320]), hidden_size=head_dim * heads, num_attention_heads=heads,
             num_hidden_layers=r.choice([1, 2, 3]), ffn_dim=r.choice([40, 72]),
             max_position_embeddings=r.choice([128, 256]), activation_function=r.choice(["relu", "relu", "gelu"]),
             do_layer_norm_before=r.chance(0.7), _remove_final_layer_norm=r.chance(0.2),
             word_embed_proj_dim=r.choice([None, None, 24]), enable_bias=r.chance(0.8),
             layer_norm_elementwise_affine=r.chance(0.8), tie_word_embeddings=r.chance(0.7), pad_token_id=1, **USUAL)
    return "OPTForCausalLM", c


def olmo(r):
    c, _ = r.base()
    without(c, "rms_norm_eps")
    c.update(clip_qkv=r.choice([None, None, 1.0, 0.3]), attention_bias=r.chance(0.3))
    r.rope(c)
    return "OlmoForCausalLM", c


GPT_LIKE = dict(bloom=bloom, codegen=codegen, falcon=falcon, gpt2=gpt2, gpt_bigcode=gpt_bigcode, gpt_neo=gpt_neo, gptj=gptj,
                mpt=mpt, olmo=olmo, openai_gpt=openai_gpt, opt=opt)
