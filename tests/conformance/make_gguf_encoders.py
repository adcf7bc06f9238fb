"""Makes GGUF files of encoders as llama.cpp's converter does, with its package `gguf`.

    python tests/conformance/make_gguf_encoders.py [--testdata DIR]

Writes testdata/gguf/families/{bert,roberta,nomic_bert,jina_embeddings_v3,modernbert,eurobert,embedding_gemma}: the file in f32, with
a small vocabulary of words or without one, and what transformers computes with the model: states, and the vector that its mean or
first token gives. A second run writes the same.
"""
import argparse
import os
import pathlib
import re

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import models  # noqa: E402: it imports torch and transformers
import gguf  # noqa: E402
import safetensors.torch  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LENGTHS = {"short": 9, "long": 33}
WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] the a cat sat on mat ##s ##ing , . sit run ##n ##er dog x ##y é 1 ##2 [unused1]".split()
BASE = dict(vocab_size=64, hidden_size=24, intermediate_size=40, num_hidden_layers=2, num_attention_heads=3, max_position_embeddings=64,
            pad_token_id=0)
BERT = dict(BASE, layer_norm_eps=1e-6, type_vocab_size=2)
DENSE = ((2, (40, 24)), (3, (24, 40)))  # projections behind the pooling of EmbeddingGemma
ROPE = dict(rope_type="default", rope_theta=1000.0)
NAMES = {  # of layers, in the order in which they are looked for
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm", "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm", "attn.Wqkv": "attn_qkv", "attn.Wo": "attn_output",
    "mlp.Wi": "ffn_up", "mlp.Wo": "ffn_down", "attn_norm": "attn_norm", "mlp_norm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",
    "post_mlp_layernorm": "layer_output_norm", "input_layernorm": "attn_norm", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
TABLES = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
          "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
          "embeddings.tok_embeddings": "token_embd", "embeddings.norm": "token_embd_norm", "final_norm": "output_norm",
          "embed_tokens": "token_embd", "norm": "output_norm"}
# The norm behind attention is called like one that stands before the MLP elsewhere.
BEHIND = {"NomicBertModel": "attn_output_norm", "JinaEmbeddingsV3Model": "attn_output_norm", "EuroBertModel": "ffn_norm",
          "Gemma3TextModel": "post_attention_norm"}


def name_in_file(key, kind):
    match = re.match(r"(?:encoder\.)?layers?\.(\d+)\.(.*)\.(weight|bias)$", key)
    if not match:
        stem, suffix = key.rsplit(".", 1)
        return f"{TABLES[stem]}.{suffix}" if stem in TABLES else None  # a pooler
    layer, inner, suffix = match.groups()
    known = BEHIND[kind] if inner == "post_attention_layernorm" else NAMES[inner]
    return f"blk.{layer}.{known}.{suffix}"


def vocabulary(w, size):
    """The vocabulary as the converter spells it: U+2581 before words, nothing before their parts."""
    words = WORDS + [f"[PAD{i}]" for i in range(len(WORDS), size)]
    special = WORDS[:5]
    w.add_tokenizer_model("bert")
    w.add_tokenizer_pre("bert-bge")
    w.add_token_list([t if t in special else t[2:] if t.startswith("##") else "\u2581" + t for t in words])
    w.add_token_types([gguf.TokenType.CONTROL if t in special else gguf.TokenType.UNUSED if t.startswith("[PAD") else gguf.TokenType.NORMAL
                       for t in words])
    for number, name in enumerate(("padding", "unknown", "cls", "seperator", "mask")):
        w.add_uint32(f"tokenizer.ggml.{name}_token_id", number)


def keys(w, c, kind, pooling):
    w.add_type("model")
    w.add_name("tiny")
    w.add_vocab_size(c.vocab_size)
    offset = c.pad_token_id + 1 if kind == "RobertaModel" else 0
    w.add_context_length(c.max_position_embeddings - offset)
    w.add_embedding_length(c.hidden_size)
    w.add_block_count(c.num_hidden_layers)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_file_type(0)
    w.add_pooling_type(pooling)
    if kind != "Gemma3TextModel":
        w.add_causal_attention(False)
    if hasattr(c, "num_key_value_heads"):
        w.add_head_count_kv(c.num_key_value_heads)
    if kind in ("EuroBertModel", "Gemma3TextModel"):
        w.add_layer_norm_rms_eps(c.rms_norm_eps)
    else:
        w.add_layer_norm_eps(getattr(c, "layer_norm_eps", None) or c.norm_eps)
    rope = getattr(c, "rope_parameters", None)
    if rope:
        w.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if rope and "sliding_attention" in rope:
        w.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    if kind == "ModernBertModel":
        w.add_sliding_window(c.local_attention)
        w.add_sliding_window_pattern(2)
    if kind == "Gemma3TextModel":
        w.add_sliding_window(8)
        w.add_key_length(c.head_dim)
        w.add_value_length(c.head_dim)
    if getattr(c, "type_vocab_size", 0):
        w.add_token_type_count(c.type_vocab_size)


def fused(state, kind):
    """q, k and v of some encoders are one tensor of the file."""
    if kind not in ("NomicBertModel", "JinaEmbeddingsV3Model"):
        return state
    out = {}
    for key, value in state.items():
        if ".self_attn.q_proj." in key:
            parts = [state[key.replace("q_proj", f"{p}_proj")] for p in "qkv"]
            out[key.replace("self_attn.q_proj", "attn.Wqkv")] = torch.cat(parts)
        elif not re.search(r"\.self_attn\.[kv]_proj\.", key):
            out[key] = value
    return out


def write(model, path, architecture, pooling):
    c, kind = model.config, type(model).__name__
    w = gguf.GGUFWriter(path, architecture)
    keys(w, c, kind, pooling)
    if kind == "BertModel":
        vocabulary(w, c.vocab_size)
    else:
        w.add_tokenizer_model("no_vocab")
    for key, value in fused(model.state_dict(), kind).items():
        name = name_in_file(key, kind)
        if name is None:
            continue
        if kind == "RobertaModel" and name.startswith("position_embd"):
            value = value[c.pad_token_id + 1:]
        if kind == "Gemma3TextModel" and name.endswith("norm.weight"):
            value = value + 1
        w.add_tensor(name, value.float().contiguous().numpy())
    if kind == "Gemma3TextModel":
        noise = torch.Generator().manual_seed(5)
        for number, shape in DENSE:
            w.add_dense_features_dims(f"dense_{number}", shape[1], shape[0])
            w.add_tensor(f"dense_{number}.weight", dense(number, shape, noise).numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def dense(number, shape, noise):
    return torch.randn(shape, generator=noise) * 0.2


def golden(model, pooling):
    noise, out = torch.Generator().manual_seed(3), {}
    for name, count in LENGTHS.items():
        ids = torch.randint(5, 25, (1, count), generator=noise)
        states = models.outputs(model, ids[0].tolist())
        vector = states[0] if pooling == gguf.PoolingType.CLS else states.mean(0)
        if type(model).__name__ == "Gemma3TextModel":
            more = torch.Generator().manual_seed(5)
            for number, shape in DENSE:
                vector = dense(number, shape, more) @ vector
        out.update({f"{name}.input_ids": ids, f"{name}.last_hidden_state": states[None].contiguous(),
                    f"{name}.sentence_embedding": torch.nn.functional.normalize(vector, dim=0)[None].contiguous()})
    return out


CASES = {
    "bert": ("bert", transformers.BertModel, BERT, gguf.PoolingType.MEAN),
    "roberta": ("bert", transformers.RobertaModel, dict(BERT, pad_token_id=1, type_vocab_size=1), gguf.PoolingType.CLS),
    "nomic_bert": ("nomic-bert", transformers.NomicBertModel, dict(BERT, rope_parameters=ROPE, hidden_act="silu"), gguf.PoolingType.MEAN),
    "jina_embeddings_v3": ("jina-bert-v3", transformers.JinaEmbeddingsV3Model,
                           dict(BERT, rope_parameters=dict(ROPE, rope_theta=20000.0), type_vocab_size=1), gguf.PoolingType.MEAN),
    "modernbert": ("modern-bert", transformers.ModernBertModel,
                   dict(BASE, num_hidden_layers=3, norm_eps=1e-6, local_attention=8, global_attn_every_n_layers=2, cls_token_id=2,
                        sep_token_id=3, bos_token_id=2, eos_token_id=3,
                        rope_parameters=dict(full_attention=dict(ROPE, rope_theta=160000.0), sliding_attention=ROPE)),
                   gguf.PoolingType.CLS),
    "eurobert": ("eurobert", transformers.EuroBertModel,
                 dict(BASE, num_key_value_heads=1, rms_norm_eps=1e-5, rope_parameters=ROPE, bos_token_id=2, eos_token_id=3), gguf.PoolingType.MEAN),
    "embedding_gemma": ("gemma-embedding", transformers.Gemma3TextModel,
                        dict(BASE, num_hidden_layers=6, num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=8, sliding_window=8,
                             use_bidirectional_attention=True, final_logit_softcapping=None, rms_norm_eps=1e-6,
                             rope_parameters=dict(full_attention=dict(ROPE, rope_theta=1e6), sliding_attention=dict(ROPE, rope_theta=1e4))),
                        gguf.PoolingType.MEAN)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--testdata", type=pathlib.Path, default=ROOT / "testdata", help="folder to write into")
    folder = parser.parse_args().testdata / "gguf" / "families"
    for seed, (name, (architecture, cls, config, pooling)) in enumerate(CASES.items()):
        model = models.build(cls, config, seed)
        write(model, folder / f"{name}.gguf", architecture, pooling)
        path = folder / f"{name}.golden.safetensors"
        safetensors.torch.save_file(golden(model, pooling), path)
        os.chmod(path, 0o644)


if __name__ == "__main__":
    main()
