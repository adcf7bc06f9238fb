// DeBERTa V2 and V3: BERT whose scores also depend on the distance of two tokens, by disentangled
// attention. Source: transformers, models/deberta_v2/modeling_deberta_v2.py.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "converters/blocks/bert.h"
#include "converters/blocks/disentangled_attention.h"
#include "converters/config/config_parts.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::deberta_v2 {
namespace {

// A member of ModelConfig::numbers: 1 where positions are added to the embeddings too.
constexpr const char* kLearnedPositions = "position_biased_input";
// A member of ModelConfig::numbers: 1 where there is a table of distances.
constexpr const char* kRelative = "relative_attention";
constexpr const char* kUnused = "no score reads it";

// Returns the parts of "p2c|c2p", without spaces and in lower case.
std::vector<std::string> parts_of(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == '|') {
      parts.emplace_back();
    } else if (c != ' ') {
      parts.back() += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    }
  }
  return parts;
}

bool has(const std::vector<std::string>& parts, std::string_view part) {
  return std::ranges::count(parts, part) > 0;
}

Result<std::vector<std::string>> score_kinds(const JsonFields& fields) {
  constexpr std::string_view kKey = "pos_att_type";
  const nlohmann::json* stated = fields.find(kKey);
  if (stated == nullptr) return std::vector<std::string>{};
  if (stated->is_string()) return parts_of(stated->get<std::string>());
  const auto is_text = [](const nlohmann::json& item) { return item.is_string(); };
  if (!stated->is_array() || !std::ranges::all_of(*stated, is_text)) {
    return fields.bad(kKey, "is neither a text nor a list of names");
  }
  return stated->get<std::vector<std::string>>();
}

// Sizes that the class of the config does not have, but its model reads.
Status check_sizes(const JsonFields& fields, const ModelConfig& config) {
  const auto equals = [&](std::string_view key, int64_t wanted) -> Status {
    const auto size = FERRY_TRY(fields.integer(key, kSizeRange));
    if (!size || *size == wanted) return {};
    return fields.error(ErrorCode::kUnsupported, key,
                        fmt::format("is {}, not {}: not supported", *size, wanted));
  };
  FERRY_RETURN_IF_ERROR(equals("embedding_size", config.hidden_size));
  FERRY_RETURN_IF_ERROR(equals("attention_head_size", config.hidden_size / config.num_heads));
  const auto kernel = FERRY_TRY(fields.integer_or("conv_kernel_size", {INT32_MIN, INT32_MAX}, 0));
  if (kernel <= 0) return {};
  return fields.error(ErrorCode::kUnsupported, "conv_kernel_size",
                      "is positive: convolutions are not supported");
}

Status read_distances(const JsonFields& fields, ModelConfig& config) {
  constexpr IntRange kAny = {INT32_MIN, kSizeRange.max};
  const int64_t farthest = FERRY_TRY(fields.integer_or("max_relative_positions", kAny, -1));
  const int64_t buckets = FERRY_TRY(fields.integer_or("position_buckets", kAny, -1));
  config.numbers[kFarthest] = farthest < 1 ? config.max_positions : farthest;
  config.numbers[kPositionBuckets] = std::max<int64_t>(buckets, 0);
  config.numbers[kRelativeSpan] = buckets > 0 ? buckets : config.number(kFarthest);
  if (buckets > 0 && (buckets < 2 || config.number(kFarthest) - 1 <= buckets / 2)) {
    return fields.error(ErrorCode::kUnsupported, "position_buckets",
                        fmt::format("is {} for distances up to {}: not supported", buckets,
                                    config.number(kFarthest)));
  }
  const auto norms = parts_of(FERRY_TRY(fields.text("norm_rel_ebd")).value_or("none"));
  config.numbers[kRelativeNorm] = has(norms, "layer_norm") ? 1 : 0;
  return {};
}

Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(check_sizes(fields, config));
  config.numbers[kTokenTypes] =
      FERRY_TRY(fields.integer_or("type_vocab_size", {0, kSizeRange.max}, 0));
  const auto kinds = FERRY_TRY(score_kinds(fields));
  const int64_t c2p = has(kinds, "c2p") ? 1 : 0, p2c = has(kinds, "p2c") ? 1 : 0;
  config.scalars.attention =
      1.0 / std::sqrt(static_cast<double>(config.head_dim * (1 + c2p + p2c)));
  FERRY_RETURN_IF_ERROR(read_distances(fields, config));
  config.numbers[kContentToPosition] = c2p;
  config.numbers[kPositionToContent] = p2c;
  return {};
}

bool disentangles(const ModelConfig& config) {
  return config.number(kRelative) != 0 &&
         config.number(kContentToPosition) + config.number(kPositionToContent) > 0;
}

std::vector<KeyRule> distance_rules(const ModelConfig& config, const std::string& prefix) {
  const std::string table = prefix + "encoder.rel_embeddings.weight";
  const std::string norm = prefix + "encoder.LayerNorm";
  if (!disentangles(config)) {
    return {drop_rule(table, kUnused), drop_rule(norm + ".weight", kUnused),
            drop_rule(norm + ".bias", kUnused)};
  }
  std::vector<KeyRule> rules =
      rename_rules(prefix, {{"encoder.rel_embeddings.weight", "relative_embeddings.weight"}});
  if (config.number(kRelativeNorm) != 0) {
    rules = concat({rules, bert_norm_rules(prefix, "encoder.LayerNorm", "relative_norm")});
  }
  if (config.number(kSharedProjections) != 0) return rules;
  const std::string layer = prefix + "encoder.layer.{i}.attention.self.";
  const auto add = [&](const char* number, const char* source, const char* target) {
    if (config.number(number) == 0) return;
    rules = concat({rules, parameter_rules(layer, /*bias=*/true, {{source, target}})});
  };
  add(kContentToPosition, "pos_key_proj", "layers.{i}.attention.wk_of_distance");
  add(kPositionToContent, "pos_query_proj", "layers.{i}.attention.wq_of_distance");
  return rules;
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string layer = "encoder.layer.{i}.", table = "embeddings.position_embeddings.weight";
  std::vector<KeyRule> all = concat(
      {rename_rules(prefix, {{"embeddings.word_embeddings.weight", "tok_embeddings.weight"}}),
       {drop_rule(prefix + "embeddings.position_ids", "numbers that follow from the config"),
        config.number(kLearnedPositions) != 0
            ? position_rule(prefix + table, /*skipped=*/0)
            : drop_rule(prefix + table, "position_biased_input is false")},
       bert_norm_rules(prefix, "embeddings.LayerNorm", "embedding_norm"),
       parameter_rules(prefix + layer, /*bias=*/true,
                       {{"attention.self.query_proj", "layers.{i}.attention.wq"},
                        {"attention.self.key_proj", "layers.{i}.attention.wk"},
                        {"attention.self.value_proj", "layers.{i}.attention.wv"},
                        {"attention.output.dense", "layers.{i}.attention.wo"},
                        {"intermediate.dense", "layers.{i}.feed_forward.w1"},
                        {"output.dense", "layers.{i}.feed_forward.w2"}}),
       bert_norm_rules(prefix, layer + "attention.output.LayerNorm", "layers.{i}.attention_norm"),
       bert_norm_rules(prefix, layer + "output.LayerNorm", "layers.{i}.ffn_norm"),
       distance_rules(config, prefix)});
  if (config.number(kTokenTypes) == 0) return all;
  return concat({all, rename_rules(prefix, {{"embeddings.token_type_embeddings.weight",
                                             "token_types.weight"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  DecoderStyle style = bert_style();
  style.learned_positions = config.number(kLearnedPositions) != 0;
  style.token_types = config.number(kTokenTypes) > 0;
  // Layer 0 of each method makes what its other layers share.
  const auto distances = std::make_shared<Distances>();
  if (disentangles(config)) {
    style.mixer = [distances](GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
      if (layer == 0) *distances = make_distances(b, c);
      return disentangled_attention(b, c, x, layer, *distances);
    };
  }
  return build_styled_decoder(config, options, style);
}

Status head(const JsonFields& fields, bool per_token, const ModelConfig& config,
            ClassifierConfig& out) {
  FERRY_RETURN_IF_ERROR(pooler_head("pooler.dense", per_token, out));
  if (per_token) return {};
  const auto width = FERRY_TRY(fields.integer("pooler_hidden_size", kSizeRange));
  if (width && *width != config.hidden_size) {
    return fields.error(ErrorCode::kUnsupported, "pooler_hidden_size", "is not hidden_size");
  }
  const std::string name = FERRY_TRY(fields.text("pooler_hidden_act")).value_or("gelu");
  if (name == "tanh") return {};
  out.steps.front().tanh = false;
  out.steps.front().activation = FERRY_TRY(read_activation(fields, "pooler_hidden_act", "gelu"));
  return {};
}

ModelType type() {
  ModelType type = bert_type("deberta-v2",
                             R"({"vocab_size": 128100, "hidden_size": 1536,
          "num_hidden_layers": 24, "num_attention_heads": 24, "intermediate_size": 6144,
          "hidden_act": "gelu", "max_position_embeddings": 512, "rms_norm_eps": 1e-7,
          "type_vocab_size": 0, "position_biased_input": true, "pooler_hidden_act": "gelu"})");
  type.sizes = {};
  type.flags = {{.key = kLearnedPositions, .otherwise = true},
                {.key = kRelative},
                {.key = kSharedProjections}};
  type.read = read;
  return type;
}

}  // namespace

const FamilySpec kFamily = {
    .types = {type()},
    .components = {{.prefixes = {"deberta."}, .heads = {}, .rules = rules, .build = build}},
    .dropped = {{"pooler.*", kEncoderHead},
                {"cls.*", kEncoderHead},
                {"lm_predictions.*", kEncoderHead},
                {"mask_predictions.*", kEncoderHead}},
    .classifiers = {{"DebertaV2", head}}};

}  // namespace ferry::converters::families::deberta_v2
