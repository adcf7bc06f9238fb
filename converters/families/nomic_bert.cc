// Nomic BERT: BERT with RoPE instead of learned positions, a gated MLP, and no biases of matrices.
// Released checkpoints have q, k and v in one tensor. Source: transformers, models/nomic_bert,
// conversion_mapping.py.

#include "converters/blocks/bert.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::nomic_bert {
namespace {

using enum GgufKey;

constexpr GgufName kNomicGguf[] = {
    {"token_embd.weight", "embeddings.word_embeddings.weight"},
    {"token_types.weight", "embeddings.token_type_embeddings.weight"},
    {"token_embd_norm.weight", "emb_ln.weight"},
    {"token_embd_norm.bias", "emb_ln.bias"},
    {"blk.{i}.attn_qkv.weight", "encoder.layers.{i}.attn.Wqkv.weight"},
    {"blk.{i}.attn_output.weight", "encoder.layers.{i}.attn.out_proj.weight"},
    {"blk.{i}.attn_output_norm.weight", "encoder.layers.{i}.norm1.weight"},
    {"blk.{i}.attn_output_norm.bias", "encoder.layers.{i}.norm1.bias"},
    {"blk.{i}.ffn_up.weight", "encoder.layers.{i}.mlp.fc11.weight"},
    {"blk.{i}.ffn_gate.weight", "encoder.layers.{i}.mlp.fc12.weight"},
    {"blk.{i}.ffn_down.weight", "encoder.layers.{i}.mlp.fc2.weight"},
    {"blk.{i}.layer_output_norm.weight", "encoder.layers.{i}.norm2.weight"},
    {"blk.{i}.layer_output_norm.bias", "encoder.layers.{i}.norm2.bias"},
};

// The names in released checkpoints.
std::vector<KeyRule> released_rules(const std::string& prefix) {
  const std::string layer = prefix + "encoder.layers.{i}.";
  return concat({bert_norm_rules(prefix, "emb_ln", "embedding_norm"),
                 packed_qkv_rules(layer + "attn.Wqkv", /*bias=*/false, PackedLayout::kConcatenated),
                 parameter_rules(layer, /*bias=*/false,
                                 {{"attn.out_proj", "layers.{i}.attention.wo"},
                                  {"mlp.fc12", "layers.{i}.feed_forward.w1"},
                                  {"mlp.fc2", "layers.{i}.feed_forward.w2"},
                                  {"mlp.fc11", "layers.{i}.feed_forward.w3"}}),
                 parameter_rules(
                     layer, /*bias=*/true,
                     {{"norm1", "layers.{i}.attention_norm"}, {"norm2", "layers.{i}.ffn_norm"}})});
}

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  return concat(
      {released_rules(prefix),
       rename_rules(prefix, {{"embeddings.word_embeddings.weight", "tok_embeddings.weight"},
                             {"embeddings.token_type_embeddings.weight", "token_types.weight"}}),
       {drop_rule(prefix + "embeddings.position_ids", "numbers that follow from the config")},
       bert_norm_rules(prefix, "embeddings.LayerNorm", "embedding_norm"),
       attention_rules(prefix, /*bias=*/false),
       parameter_rules(prefix, /*bias=*/false,
                       {{"layers.{i}.mlp.gate_proj", "layers.{i}.feed_forward.w1"},
                        {"layers.{i}.mlp.down_proj", "layers.{i}.feed_forward.w2"},
                        {"layers.{i}.mlp.up_proj", "layers.{i}.feed_forward.w3"}}),
       parameter_rules(prefix, /*bias=*/true,
                       {{"layers.{i}.post_attention_layernorm", "layers.{i}.attention_norm"},
                        {"layers.{i}.post_mlp_layernorm", "layers.{i}.ffn_norm"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_styled_decoder(config, options,
                              {.residuals = Residuals::kNormAfter,
                               .gated = true,
                               .final_norm = false,
                               .token_types = true,
                               .embedding_norm = true});
}

Status head(const JsonFields&, bool per_token, const ModelConfig&, ClassifierConfig& out) {
  return pooler_head("nomic_bert.pooler.dense", per_token, out);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "nomic_bert",
               .defaults = R"({"vocab_size": 30528, "hidden_size": 768, "num_hidden_layers": 12,
                               "num_attention_heads": 12, "intermediate_size": 3072,
                               "hidden_act": "silu", "max_position_embeddings": 2048,
                               "type_vocab_size": 2, "rms_norm_eps": 1e-12,
                               "rope_theta": 1000.0})",
               .names = {{"rms_norm_eps", {"layer_norm_eps"}}},
               .unread = {"num_key_value_heads"},
               .sizes = {kTokenTypes},
               .two_way = TwoWayRule::kAlways}},
    .components = {{.prefixes = {"nomic_bert."}, .heads = {}, .rules = rules, .build = build}},
    .dropped = {{"nomic_bert.pooler.*", kEncoderHead}, {"cls.*", kEncoderHead}},
    .classifiers = {{"NomicBert", head}},
    .gguf = {{.name = "nomic-bert",
              .tokenizer_keys = {.encoder = true},
              .tables = {kNomicGguf},
              .layer_norm = true,
              .own_keys = GgufOwnKeys::kEncoder,
              .keys = {kBlocks, kContext, kEmbedding, kFeedForward, kHeads, kRopeBase,
                       kLayerNormEpsilon, kHeadLengths, kFileType, kNotCausal, kPooling},
              .equal_heads = true}}};

}  // namespace ferry::converters::families::nomic_bert
