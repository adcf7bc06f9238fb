// ModernBERT: norms before the blocks but for the first, a gated MLP, windows in most layers, and a
// RoPE for each kind of layer. Source: transformers, models/modernbert.

#include <fmt/format.h>

#include "converters/blocks/decoder.h"
#include "converters/config/config_parts.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"
#include "core/text.h"

namespace ferry::converters::families::modernbert {
namespace {

using enum GgufKey;

constexpr const char* kNormBias = "norm_bias";

constexpr GgufName kModernGguf[] = {
    {"token_embd.weight", "embeddings.tok_embeddings.weight"},
    {"token_embd_norm.weight", "embeddings.norm.weight"},
    {"output_norm.weight", "final_norm.weight"},
    {"blk.{i}.attn_norm.weight", "layers.{i}.attn_norm.weight"},
    {"blk.{i}.attn_qkv.weight", "layers.{i}.attn.Wqkv.weight"},
    {"blk.{i}.attn_output.weight", "layers.{i}.attn.Wo.weight"},
    {"blk.{i}.ffn_norm.weight", "layers.{i}.mlp_norm.weight"},
    {"blk.{i}.ffn_up.weight", "layers.{i}.mlp.Wi.weight"},
    {"blk.{i}.ffn_down.weight", "layers.{i}.mlp.Wo.weight"},
    {"cls.weight", "head.dense.weight"},
    {"cls.norm.weight", "head.norm.weight"},
    {"cls.output.weight", "classifier.weight"},
    {"cls.output.bias", "classifier.bias"},
};

// These keys would change the RoPE or the window of the reference in ways of their own.
Status read(const JsonFields& fields, ModelConfig&) {
  for (const char* key : {"rope_scaling", "stated_window"}) {
    if (fields.find(key) == nullptr) continue;
    return fields.error(ErrorCode::kUnsupported, key, "is stated: not supported in modernbert");
  }
  return {};
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string layer = prefix + "layers.{i}.";
  const bool bias = config.attention_bias;
  return concat(
      {rename_rules(prefix, {{"embeddings.tok_embeddings.weight", "tok_embeddings.weight"}}),
       parameter_rules(prefix, config.number(kNormBias) != 0,
                       {{"embeddings.norm", "embedding_norm"},
                        {"layers.{i}.attn_norm", "layers.{i}.attention_norm"},
                        {"layers.{i}.mlp_norm", "layers.{i}.ffn_norm"},
                        {"final_norm", "norm"}}),
       packed_qkv_rules(layer + "attn.Wqkv", bias, PackedLayout::kConcatenated),
       parameter_rules(layer, bias, {{"attn.Wo", "layers.{i}.attention.wo"}}),
       packed_gate_up_rules(layer + "mlp.Wi", config.mlp_bias, PackedLayout::kConcatenated),
       parameter_rules(layer, config.mlp_bias, {{"mlp.Wo", "layers.{i}.feed_forward.w2"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias;
  return build_styled_decoder(
      config, options,
      {.attention = {.qkv_bias = bias, .output_bias = bias},
       .norm = config.number(kNormBias) != 0 ? NormKind::kLayer : NormKind::kLayerNoBias,
       .gated = true,
       .first_bare = true,
       .embedding_norm = true});
}

// The head of tokens has the same steps.
Status head(const JsonFields& fields, bool per_token, const ModelConfig& config,
            ClassifierConfig& out) {
  using Pooling = ClassifierConfig::Pooling;
  const std::string pooling = FERRY_TRY(fields.text("classifier_pooling")).value_or("cls");
  if (pooling != "cls" && pooling != "mean") {
    return fields.bad("classifier_pooling", fmt::format("is {}: not cls, mean", quoted(pooling)));
  }
  out.pooling = per_token ? Pooling::kNone : pooling == "cls" ? Pooling::kFirst : Pooling::kMean;
  out.steps = {{.key = "head.dense",
                .bias = FERRY_TRY(fields.flag_or("classifier_bias", false)),
                .activation = FERRY_TRY(read_activation(fields, "classifier_activation", "gelu")),
                .norm_key = "head.norm",
                .norm_bias = config.number(kNormBias) != 0},
               {.key = "classifier"}};
  return {};
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "modernbert",
               .defaults = R"({"vocab_size": 50368, "hidden_size": 768, "intermediate_size": 1152,
                               "num_hidden_layers": 22, "num_attention_heads": 12,
                               "hidden_activation": "gelu", "max_position_embeddings": 8192,
                               "rms_norm_eps": 1e-5, "sliding_window": 128,
                               "sliding_window_pattern": 3, "rope_theta": 160000.0,
                               "rope_local_base_freq": 10000.0})",
               .names = {{"rms_norm_eps", {"norm_eps"}},
                         {"sliding_window", {"local_attention"}},
                         {"stated_window", {"sliding_window"}},
                         {"sliding_window_pattern", {"global_attn_every_n_layers"}},
                         {"rope_theta", {"global_rope_theta"}},
                         {"rope_local_base_freq", {"local_rope_theta"}}},
               .unread = {"num_key_value_heads", "head_dim"},
               .flags = {{.key = kNormBias}},
               .activation_key = "hidden_activation",
               .rope = RopeRule::kByLayer,
               .window = WindowRule::kFirstFull,
               .lists_layers = true,
               .attention_bias = true,
               .mlp_bias = true,
               .two_way = TwoWayRule::kAlways,
               .read = read}},
    .components = {{.heads = {}, .rules = rules, .build = build}},
    .dropped = {{"head.*", kEncoderHead}, {"decoder.*", kEncoderHead}},
    .classifiers = {{"ModernBert", head}},
    .gguf = {
        {.name = "modern-bert",
         .tokenizer_keys = {.framed = true},
         .tables = {kModernGguf},
         .layer_norm = true,
         .own_keys = GgufOwnKeys::kModernBert,
         .keys = {kBlocks, kContext, kEmbedding, kFeedForward, kHeads, kRopeBase, kSlidingRopeBase,
                  kModernEpsilons, kFileType, kNotCausal, kPooling, kLabelPooling, kLabels,
                  kLocalWindow, kWindowStep, kRopeScaling, kVocabulary, kHiddenActivation},
         .activation = Activation::kGeluTanh,
         .rough_gelu = true,
         .lists_windows = true}}};

}  // namespace ferry::converters::families::modernbert
