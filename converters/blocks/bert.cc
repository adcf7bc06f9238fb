#include "converters/blocks/bert.h"

#include <fmt/format.h>

#include "converters/keys/standard_keys.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

// All but the table of positions.
std::vector<KeyRule> common_rules(const std::string& prefix) {
  return concat(
      {rename_rules(prefix, {{"embeddings.word_embeddings.weight", "tok_embeddings.weight"},
                             {"embeddings.token_type_embeddings.weight", "token_types.weight"}}),
       {drop_rule(prefix + "embeddings.position_ids", "numbers that follow from the config"),
        drop_rule(prefix + "embeddings.token_type_ids", "numbers that follow from the config")},
       bert_norm_rules(prefix, "embeddings.LayerNorm", "embedding_norm"),
       parameter_rules(prefix + "encoder.", /*bias=*/true,
                       {{"layer.{i}.attention.self.query", "layers.{i}.attention.wq"},
                        {"layer.{i}.attention.self.key", "layers.{i}.attention.wk"},
                        {"layer.{i}.attention.self.value", "layers.{i}.attention.wv"},
                        {"layer.{i}.attention.output.dense", "layers.{i}.attention.wo"},
                        {"layer.{i}.intermediate.dense", "layers.{i}.feed_forward.w1"},
                        {"layer.{i}.output.dense", "layers.{i}.feed_forward.w2"}}),
       bert_norm_rules(prefix, "encoder.layer.{i}.attention.output.LayerNorm",
                       "layers.{i}.attention_norm"),
       bert_norm_rules(prefix, "encoder.layer.{i}.output.LayerNorm", "layers.{i}.ffn_norm")});
}

constexpr const char* kPositions = "embeddings.position_embeddings.weight";

}  // namespace

std::vector<KeyRule> bert_norm_rules(const std::string& prefix, const std::string& source,
                                     const std::string& target) {
  std::vector<KeyRule> rules;
  for (const auto& [from, to] : {std::pair{".weight", ".weight"}, std::pair{".bias", ".bias"},
                                 std::pair{".gamma", ".weight"}, std::pair{".beta", ".bias"}}) {
    const std::string key = source + from, name = target + to;
    rules.push_back(rename_rules(prefix, {{key.c_str(), name.c_str()}}).front());
  }
  return rules;
}

std::vector<KeyRule> bert_rules(const std::string& prefix) {
  return concat({common_rules(prefix), {position_rule(prefix + kPositions, /*skipped=*/0)}});
}

std::vector<KeyRule> roberta_rules(const std::string& prefix, int64_t uncounted) {
  return concat({common_rules(prefix),
                 {position_rule(prefix + kPositions, /*skipped=*/uncounted, /*before=*/1)}});
}

ModelType bert_type(std::string_view name, std::string_view defaults) {
  return {.name = name,
          .defaults = defaults,
          .names = {{"rms_norm_eps", {"layer_norm_eps"}}},
          .unread = {"num_key_value_heads", "head_dim"},
          .sizes = {kTokenTypes},
          .rope = RopeRule::kNone,
          .two_way = TwoWayRule::kAlways,
          .rope_layers = RopeLayers::kNone,
          .read = read_bert};
}

Status read_bert(const JsonFields& fields, ModelConfig&) {
  for (const char* key : {"is_decoder", "add_cross_attention"}) {
    if (!FERRY_TRY(fields.flag_or(key, false))) continue;
    return fields.error(ErrorCode::kUnsupported, key, "is true: decoders are not supported");
  }
  const std::string kind = FERRY_TRY(fields.text("position_embedding_type")).value_or("absolute");
  if (kind == "absolute") return {};
  return fields.error(ErrorCode::kUnsupported, "position_embedding_type",
                      fmt::format("is {}: only absolute is supported", quoted(kind)));
}

Status read_uncounted(const JsonFields& fields, int64_t token, ModelConfig& config) {
  const int64_t positions = config.max_positions - token - 1;
  if (positions < 1) {
    return fields.bad("max_position_embeddings", fmt::format("is {}: positions begin with {}",
                                                             config.max_positions, token + 1));
  }
  config.max_positions = positions;
  config.numbers[kUncountedToken] = token;
  return {};
}

DecoderStyle bert_style() {
  return {.attention = {.qkv_bias = true, .output_bias = true},
          .residuals = Residuals::kNormAfter,
          .mlp_bias = true,
          .final_norm = false,
          .learned_positions = true,
          .token_types = true,
          .embedding_norm = true};
}

}  // namespace ferry::converters
