// Phi-3, Phi-3.5 and Phi-4-mini: Llama with q, k and v in one tensor and gate and up in another,
// LongRoPE over a part of each head, and a sliding window in every layer where the config states
// one. Source: transformers, models/phi3/modeling_phi3.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/families/keras_tables.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::phi3 {
namespace {

using namespace gguf_tables;
using namespace keras_tables;
using enum GgufKey;

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  const std::string layer = prefix + "layers.{i}.";
  return concat(
      {packed_qkv_rules(layer + "self_attn.qkv_proj", /*bias=*/false, PackedLayout::kConcatenated),
       packed_gate_up_rules(layer + "mlp.gate_up_proj", /*bias=*/false,
                            PackedLayout::kConcatenated),
       rename_rules(prefix,
                    {{"embed_tokens.weight", "tok_embeddings.weight"},
                     {"layers.{i}.self_attn.o_proj.weight", "layers.{i}.attention.wo.weight"},
                     {"layers.{i}.mlp.down_proj.weight", "layers.{i}.feed_forward.w2.weight"}}),
       standard_norm_rules(prefix),
       {drop_rule(layer + "self_attn.rotary_emb.inv_freq", "derived from the config")}});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options, {});
}

constexpr KerasRow kKerasInside[] = {
    {"pre_attention_layernorm/vars/0", "input_layernorm.weight", KerasOp::kCopy, "D"},
    {"attention/query_dense/vars/0", "self_attn.qkv_proj.weight", KerasOp::kMergeLastTranspose,
     "DHd"},
    {"attention/key_dense/vars/0", "self_attn.qkv_proj.weight", KerasOp::kMergeLastTranspose,
     "DKd"},
    {"attention/value_dense/vars/0", "self_attn.qkv_proj.weight", KerasOp::kMergeLastTranspose,
     "DKd"},
    {"attention/output_dense/vars/0", "self_attn.o_proj.weight", KerasOp::kMergeFirstTranspose,
     "HdD"},
    {"post_attention_layernorm/vars/0", "post_attention_layernorm.weight", KerasOp::kCopy, "D"},
    {"feedforward_gate_dense/vars/0", "mlp.gate_up_proj.weight", KerasOp::kTranspose, "DM"},
    {"feedforward_intermediate_dense/vars/0", "mlp.gate_up_proj.weight", KerasOp::kTranspose, "DM"},
    {"feedforward_output_dense/vars/0", "mlp.down_proj.weight", KerasOp::kTranspose, "MD"},
};

}  // namespace

const FamilySpec kFamily = {
    .types =
        {{.name = "phi3",
          .defaults =
              R"({"pad_token_id": 32000, "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192,
                               "num_hidden_layers": 32, "num_attention_heads": 32,
                               "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
                               "original_max_position_embeddings": 4096})",
          .rope = RopeRule::kPhi3,
          .partial_rope = true,
          .window = WindowRule::kAll}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"Phi3", score_head}},
    .gguf = {{.name = "phi3",
              .tokenizer_keys = {.sentence_piece = true},
              .tables = {kFrame, kPackedProjections, kPreNorm},
              .partial_rotary = true,
              .keys = {kContext, kOriginalContext, kEmbedding, kFeedForward, kBlocks, kHeads,
                       kKvHeads, kRmsEpsilon, kRopeDimension, kRopeBase, kFileType, kWindowOrNone},
              .equal_heads = true}},
    .keras = {{.classes = {"Phi3Backbone"},
               .decoder = "phi3_decoder",
               .final_norm = "phi3_layer_norm",
               .outside = kKerasEmbeddingAndHead,
               .inside = {{kKerasInside}}}},
    .meta = MetaParams{}};

}  // namespace ferry::converters::families::phi3
