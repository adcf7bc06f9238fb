"""Random configurations of encoders of BERT's kind."""
from draw import ATTENTION, divisors, swap, without


def bert_like(r, **more):
    c, _ = r.base(own_head_dim=False, usual="gelu", states_head_dim=False)
    without(c, "num_key_value_heads", "tie_word_embeddings")
    swap(c, "rms_norm_eps", "layer_norm_eps")
    c.update(max_position_embeddings=r.choice([96, 128, 130, 514]), layer_norm_eps=r.choice([1e-12, 1e-5, 1e-3]))
    c.update(more)
    return c


def bert(r):
    c = bert_like(r, type_vocab_size=r.choice([1, 2, 2, 3]), pad_token_id=r.choice([0, 0, 1, 7]))
    if r.chance(0.1):
        c["is_decoder"] = True
    return "BertModel", c


def roberta_like(r):
    return bert_like(r, type_vocab_size=r.choice([1, 1, 2]), pad_token_id=r.choice([1, 1, 0, 5, 9]))


def roberta(r):
    return "RobertaModel", roberta_like(r)


def xlm_roberta(r):
    return "XLMRobertaModel", roberta_like(r)


def camembert(r):
    return "CamembertModel", roberta_like(r)


def mpnet(r):
    rows = r.choice([32, 32, 32, 40, 64])
    return "MPNetModel", bert_like(r, relative_attention_num_buckets=rows, pad_token_id=r.choice([1, 1, 0, 3]))


def distilbert(r):
    c = bert_like(r)
    without(c, "layer_norm_eps")
    for old, new in (("hidden_size", "dim"), ("num_attention_heads", "n_heads"), ("num_hidden_layers", "n_layers"),
                     ("intermediate_size", "hidden_dim"), ("hidden_act", "activation")):
        swap(c, old, new)
    c["sinusoidal_pos_embds"] = r.chance(0.3)
    return "DistilBertModel", c


def with_rope(r, usual, types):
    c, _ = r.base(usual=usual)
    without(c, "num_key_value_heads", "tie_word_embeddings")
    swap(c, "rms_norm_eps", "layer_norm_eps")
    c["type_vocab_size"] = r.choice(types)
    r.rope(c)
    return c


def nomic_bert(r):
    return "NomicBertModel", with_rope(r, "silu", [1, 2, 2])


def jina_embeddings_v3(r):
    return "JinaEmbeddingsV3Model", with_rope(r, "gelu", [1, 1, 2])


def deberta_v2(r):
    c = bert_like(r, type_vocab_size=r.choice([0, 0, 1, 2]), pad_token_id=0, relative_attention=r.chance(0.8),
                  position_biased_input=r.chance(0.4), share_att_key=r.chance(0.5), norm_rel_ebd=r.choice(["layer_norm", "none"]),
                  max_relative_positions=r.choice([-1, -1, 40, 96]), position_buckets=r.choice([-1, 8, 16, 32, 7]),
                  pos_att_type=r.choice(["p2c|c2p", "c2p|p2c", ["p2c", "c2p"], ["c2p"], ["p2c"], "p2c", None]),
                  pooler_hidden_act=r.choice(["gelu", "gelu", "tanh", "relu"]))
    return "DebertaV2Model", c


def modernbert(r):
    c, d = r.base(own_head_dim=False, usual="gelu", states_head_dim=False)
    without(c, "num_key_value_heads", "tie_word_embeddings")
    swap(c, "rms_norm_eps", "norm_eps")
    swap(c, "hidden_act", "hidden_activation")
    c.update(local_attention=r.choice([0, 1, 2, 3, 4, 7, 8, 16, 32, 128]), norm_bias=r.chance(0.3),
             attention_bias=r.chance(0.3), mlp_bias=r.chance(0.3))
    if r.chance(0.6):
        c["layer_types"] = r.layer_types(c["num_hidden_layers"], "sliding_attention", "full_attention")
    else:
        c["global_attn_every_n_layers"] = r.choice([1, 2, 3, 4])
    if r.chance(0.6):
        full = r.rope(c, weights=(60, 20, 20, 0, 0))
        c["rope_parameters"] = dict(full_attention=full,
                                    sliding_attention=dict(rope_type="default", rope_theta=r.theta()))
    elif r.chance(0.5):
        c.update(global_rope_theta=r.theta(), local_rope_theta=r.theta())
    return "ModernBertModel", c


def eurobert(r):
    c, d = r.base()
    c.update(attention_bias=r.chance(0.3), mlp_bias=r.chance(0.3))
    r.rope(c)
    return "EuroBertModel", c


def embedding_gemma2_text(r):
    c, d = r.base(usual="gelu_pytorch_tanh", layers=r.choice([2, 3, 4, 5]))
    layers, heads = c["num_hidden_layers"], c["num_attention_heads"]
    without(c, "tie_word_embeddings")
    swap(c, "hidden_act", "hidden_activation")
    c.update(head_dim=d, attention_bias=r.chance(0.2), sliding_window=r.choice([0, 1, 2, 3, 7, 8, 16, 32]),
             hidden_size_per_layer_input=r.choice([8, 12, 16]), embedding_dim=r.choice([c["hidden_size"], 24, 40, 136]),
             global_head_dim=r.choice([d, 2 * d, 16, 24]), num_global_key_value_heads=r.choice(divisors(heads)))
    if r.chance(0.6):
        c["layer_types"] = r.layer_types(layers, *ATTENTION)
    elif r.chance(0.6):
        c["sliding_window_pattern"] = r.choice([1, 2, 3])
    if r.chance(0.7):
        c["rope_parameters"] = {kind: r.rope(c, weights=(60, 15, 15, 10, 0)) for kind in ATTENTION}
    return c


def embedding_gemma2(r):
    text = embedding_gemma2_text(r)
    if r.chance(0.6):
        return "EmbeddingGemma2TextModel", text
    vision = dict(hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=8,
                  position_embedding_size=16, patch_size=4, model_type="gemma4_vision")
    return "EmbeddingGemma2Model", dict(text_config=text, vision_config=r.choice([None, vision]), audio_config=None)


ENCODERS = dict(bert=bert, roberta=roberta, xlm_roberta=xlm_roberta, camembert=camembert, mpnet=mpnet, distilbert=distilbert,
                nomic_bert=nomic_bert, jina_embeddings_v3=jina_embeddings_v3, deberta_v2=deberta_v2, modernbert=modernbert,
                eurobert=eurobert, embedding_gemma2=embedding_gemma2)
