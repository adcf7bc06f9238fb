"""Makes a GGUF file of a tiny random Gemma 3n as llama.cpp's converter does, with its package `gguf`.

    python tests/conformance/make_gguf_gemma3n.py [--testdata DIR]

Writes testdata/gguf/families/gemma3n: the file in f32, without a vocabulary, and the logits that transformers computes. llama.cpp knows
some sizes by heart: gguf_peers makes a file with these (`RELEASED`), which is too large for a fixture.
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
ROPE = {kind: dict(rope_type="default", rope_theta=theta) for kind, theta in (("full_attention", 1e6), ("sliding_attention", 1e4))}
BASE = dict(vocab_size=64, vocab_size_per_layer_input=64, hidden_size=16, intermediate_size=24, num_attention_heads=2,
            num_key_value_heads=1, head_dim=8, max_position_embeddings=64, sliding_window=8, rms_norm_eps=1e-6, pad_token_id=0,
            rope_parameters=ROPE, final_logit_softcapping=30.0, altup_active_idx=0)
SMALL = dict(BASE, num_hidden_layers=4, layer_types=["sliding_attention", "full_attention"] * 2, num_kv_shared_layers=2,
             hidden_size_per_layer_input=8, altup_num_inputs=3, laurel_rank=4, activation_sparsity_pattern=[0.95, 0.5, 0.0, 0.0])
# llama.cpp divides squares by one less than the width of an MLP, which matters where it is narrow.
RELEASED = dict(BASE, intermediate_size=4096, num_hidden_layers=25, layer_types=(["sliding_attention"] * 4 + ["full_attention"]) * 5, num_kv_shared_layers=5,
                hidden_size_per_layer_input=256, altup_num_inputs=4, laurel_rank=64,
                activation_sparsity_pattern=[0.95] * 10 + [0.0] * 15)
TABLES = {"embed_tokens": "token_embd", "embed_tokens_per_layer": "per_layer_token_embd", "norm": "output_norm",
          "per_layer_model_projection": "per_layer_model_proj", "per_layer_projection_norm": "per_layer_proj_norm"}
NAMES = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
         "post_feedforward_layernorm": "post_ffw_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down", "per_layer_input_gate": "inp_gate", "per_layer_projection": "proj",
         "post_per_layer_input_norm": "post_norm", "altup.correction_coefs": "altup_correct_coef",
         "altup.correct_output_scale": "altup_correct_scale", "altup.prediction_coefs": "altup_predict_coef",
         "altup.modality_router": "altup_router", "altup.router_norm": "altup_router_norm", "laurel.linear_left": "laurel_l",
         "laurel.linear_right": "laurel_r", "laurel.post_laurel_norm": "laurel_post_norm"}


def keys(w, c):
    w.add_type("model")
    w.add_vocab_size(c.vocab_size)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_block_count(c.num_hidden_layers)
    w.add_feed_forward_length(c.intermediate_size[0] if isinstance(c.intermediate_size, list) else c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_key_length(c.head_dim)
    w.add_value_length(c.head_dim)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_rope_freq_base(c.rope_parameters["full_attention"]["rope_theta"])
    w.add_rope_freq_base_swa(c.rope_parameters["sliding_attention"]["rope_theta"])
    w.add_sliding_window(c.sliding_window)
    w.add_sliding_window_pattern([kind == "sliding_attention" for kind in c.layer_types])
    w.add_final_logit_softcapping(c.final_logit_softcapping)
    w.add_altup_active_idx(c.altup_active_idx)
    w.add_altup_num_inputs(c.altup_num_inputs)
    w.add_embedding_length_per_layer_input(c.hidden_size_per_layer_input)
    w.add_shared_kv_layers(c.num_kv_shared_layers)
    normal = torch.distributions.normal.Normal(0, 1)
    w.add_activation_sparsity_scale([normal.icdf(torch.tensor(s, dtype=torch.float32)).item() for s in c.activation_sparsity_pattern])
    w.add_file_type(0)


def tensors(state):
    streams = {}
    for key, value in state.items():
        key = key.removeprefix("model.").removesuffix(".weight")
        layer = re.match(r"layers\.(\d+)\.(.*)", key)
        stream = re.match(r"altup_(unembed_)?projections\.(\d+)", key)
        if stream:
            streams.setdefault("altup_unembd_proj" if stream.group(1) else "altup_proj", {})[int(stream.group(2))] = value
        elif layer:
            yield f"blk.{layer.group(1)}.{NAMES[layer.group(2)]}.weight", value
        elif key in TABLES:
            yield f"{TABLES[key]}.weight", value
    for name, parts in streams.items():
        yield f"{name}.weight", torch.stack([parts[i] for i in range(len(parts))])


def unused(c):
    """Layers that take the keys of earlier ones have some of their own in released checkpoints, which nothing reads."""
    for layer in range(c.num_hidden_layers - c.num_kv_shared_layers, c.num_hidden_layers):
        for name, shape in (("attn_k", (c.head_dim, c.hidden_size)), ("attn_v", (c.head_dim, c.hidden_size)), ("attn_k_norm", (c.head_dim,))):
            yield f"blk.{layer}.{name}.weight", torch.ones(shape)


def write(model, path, vocabulary=True):
    w = gguf.GGUFWriter(path, "gemma3n")
    keys(w, model.config)
    if vocabulary:  # llama.cpp takes the size of the vocabulary from the tokens
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre("gpt-2")
        w.add_token_list([chr(0x100 + i) for i in range(model.config.vocab_size)])
        w.add_token_types([1] * model.config.vocab_size)
        w.add_token_merges([f"{chr(0x100)} {chr(0x101)}"])
    else:
        w.add_tokenizer_model("no_vocab")
    for name, value in [*tensors(model.state_dict()), *unused(model.config)]:
        w.add_tensor(name, value.float().contiguous().numpy())
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def golden(model):
    noise, out = torch.Generator().manual_seed(3), {}
    for name, count in LENGTHS.items():
        ids = torch.randint(3, model.config.vocab_size, (1, count), generator=noise)
        out.update({f"{name}.input_ids": ids, f"{name}.logits": models.outputs(model, ids[0].tolist())[None].contiguous()})
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--testdata", type=pathlib.Path, default=ROOT / "testdata", help="folder to write into")
    path = parser.parse_args().testdata / "gguf" / "families" / "gemma3n"
    model = models.build(transformers.Gemma3nForCausalLM, SMALL, 0)
    write(model, f"{path}.gguf", vocabulary=False)
    safetensors.torch.save_file(golden(model), f"{path}.golden.safetensors")
    os.chmod(f"{path}.golden.safetensors", 0o644)


if __name__ == "__main__":
    main()
