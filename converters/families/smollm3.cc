// SmolLM3: Llama, where layers that no_rope_layers lists have no RoPE; every fourth one by default.
// Source: transformers, models/smollm3/modeling_smollm3.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/families/keras_tables.h"

namespace ferry::converters::families::smollm3 {
namespace {

using namespace gguf_tables;
using namespace keras_tables;

// The frequencies of RoPE are stored too; families drop them.
constexpr KerasRow kKerasInside[] = {
    {"input_layernorm/vars/0", "input_layernorm.weight", KerasOp::kCopy, "D"},
    {"self_attn/q_proj/vars/0", "self_attn.q_proj.weight", KerasOp::kTranspose, "DQ"},
    {"self_attn/k_proj/vars/0", "self_attn.k_proj.weight", KerasOp::kTranspose, "DR"},
    {"self_attn/v_proj/vars/0", "self_attn.v_proj.weight", KerasOp::kTranspose, "DR"},
    {"self_attn/o_proj/vars/0", "self_attn.o_proj.weight", KerasOp::kMergeFirstTranspose, "HdD"},
    {"self_attn/rotary_embedding/vars/0", "self_attn.rotary_emb.inv_freq", KerasOp::kCopy, "f"},
    {"post_attention_layernorm/vars/0", "post_attention_layernorm.weight", KerasOp::kCopy, "D"},
    {"mlp/gate_proj/vars/0", "mlp.gate_proj.weight", KerasOp::kTranspose, "DM"},
    {"mlp/gate_proj/vars/1", "mlp.gate_proj.bias", KerasOp::kCopy, "M"},
    {"mlp/up_proj/vars/0", "mlp.up_proj.weight", KerasOp::kTranspose, "DM"},
    {"mlp/up_proj/vars/1", "mlp.up_proj.bias", KerasOp::kCopy, "M"},
    {"mlp/down_proj/vars/0", "mlp.down_proj.weight", KerasOp::kTranspose, "MD"},
    {"mlp/down_proj/vars/1", "mlp.down_proj.bias", KerasOp::kCopy, "D"},
};

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "smollm3",
               .defaults = R"({"pad_token_id": 128004, "vocab_size": 128256, "hidden_size": 2048,
                               "intermediate_size": 11008, "num_hidden_layers": 36,
                               "num_attention_heads": 16, "num_key_value_heads": 4,
                               "max_position_embeddings": 32768, "rope_theta": 2000000.0,
                               "no_rope_layer_interval": 4, "tie_word_embeddings": true})",
               .window = WindowRule::kWhereNoRope,
               .lists_layers = true,
               .attention_bias = true,
               .mlp_bias = true,
               .rope_layers = RopeLayers::kListed}},
    .components = {{.rules = llama_rules, .build = build_llama}},
    .classifiers = {{"SmolLM3", score_head}},
    .gguf = {{.name = "smollm3",
              .tokenizer_keys = {.sentence_piece = true, .llama = true},
              .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kMlp},
              .no_rope_interval = 4,
              .keys = llama_keys(),
              .unread = block_biases()}},
    .keras = {{.classes = {"SmolLM3Backbone"},
               .decoder = "smol_lm3_decoder_layer",
               .final_norm = "rms_normalization",
               .outside = kKerasEmbeddingAndHead,
               .inside = {{kKerasInside}}}},
    .meta = MetaParams{}};

}  // namespace ferry::converters::families::smollm3
