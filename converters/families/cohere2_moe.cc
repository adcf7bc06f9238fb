// Cohere's models with experts: Command R7B with experts in place of most MLPs, and perhaps RMS
// norms. Source: transformers, models/cohere2_moe/modeling_cohere2_moe.py.

#include <fmt/format.h>

#include <algorithm>

#include "converters/blocks/cohere.h"
#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::cohere2_moe {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr const char* kRmsNorm = "rms_norm";

Status read_moe(const JsonFields& fields, MoeConfig& moe) {
  const auto choice = FERRY_TRY(fields.text("expert_selection_fn"));
  moe.scores = choice == "sigmoid" ? MoeConfig::Scores::kSigmoid : MoeConfig::Scores::kTopSoftmax;
  if (choice != "softmax" && choice != "sigmoid") {
    return fields.bad("expert_selection_fn", "is neither softmax nor sigmoid");
  }
  moe.shared_gate = false;
  const int64_t shared = FERRY_TRY(fields.required("num_shared_experts", kExpertRange));
  moe.shared_size = shared * moe.expert_size;
  if (moe.shared_size > kSizeRange.max) return fields.bad("num_shared_experts", "is too many");
  if (shared == 0) return {};
  const auto sum = FERRY_TRY(fields.text("shared_expert_combination_strategy"));
  if (sum == "average") moe.sum_scale = 0.5;
  if (sum == "average" || sum == "sum") return {};
  return fields.bad("shared_expert_combination_strategy", "is neither average nor sum");
}

Status read(const JsonFields& fields, ModelConfig& config) {
  const auto dense = FERRY_TRY(fields.integer("prefix_dense_intermediate_size", kSizeRange));
  if (dense) config.intermediate_size = *dense;
  const bool rms = fields.find("rms_norm_eps") != nullptr;
  config.numbers[kRmsNorm] = rms ? 1 : 0;
  if (!rms) config.rms_norm_eps = FERRY_TRY(fields.number_or("layer_norm_eps", kEpsRange, 1e-5));
  const int64_t pattern =
      FERRY_TRY(fields.required("prefix_dense_sliding_window_pattern", kLayerRange));
  config.numbers[kDenseRope] = pattern == 1 ? 1 : 0;
  if (config.moe.experts > 0) FERRY_RETURN_IF_ERROR(read_moe(fields, config.moe));
  return read_cohere(fields, config);
}

// The first layers, which have no experts, have a pattern of their own.
Result<std::vector<LayerType>> layers(const JsonFields& fields, const ModelConfig& config) {
  const int64_t first = std::min(
      config.num_layers, FERRY_TRY(fields.required("first_k_dense_replace", {0, INT32_MAX})));
  const int64_t of_first =
      FERRY_TRY(fields.required("prefix_dense_sliding_window_pattern", kLayerRange));
  const int64_t of_rest = FERRY_TRY(fields.required("sliding_window_pattern", kLayerRange));
  std::vector<LayerType> types;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const bool full = i < first ? (i + 1) % of_first == 0 : (i - first + 1) % of_rest == 0;
    types.push_back(full ? LayerType::kFullAttention : LayerType::kSlidingAttention);
  }
  return types;
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  std::vector<KeyRule> all = cohere_rules(config, prefix);
  if (config.moe.experts == 0) return all;
  return concat({all, expert_rules(prefix, config), shared_experts_rules(prefix, config)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias, rms = config.number(kRmsNorm) != 0;
  return build_styled_decoder(config, options,
                              {.attention = {.qkv_bias = bias, .output_bias = bias},
                               .norm = rms ? NormKind::kRms : NormKind::kLayerNoBias,
                               .residuals = Residuals::kOneNorm,
                               .gated = true});
}

GgufArchitecture gguf(bool rms) {
  const auto with_rms = [](const ModelConfig& c) { return c.number(kRmsNorm) != 0; };
  const auto without = [](const ModelConfig& c) { return c.number(kRmsNorm) == 0; };
  return {.name = "cohere2moe",
          .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kMlp, kSharedExperts,
                     kExperts, kFusedExperts},
          .layer_norm = !rms,
          .logit_scale = true,
          .window_every = 4,
          .sign = rms ? GgufSign::kRmsNorms : GgufSign::kNone,
          .own_keys = GgufOwnKeys::kCohereMoe,
          .keys = standard_keys({kLogitScale, kWindow, kWindowPattern, kVocabulary, kExpertLength,
                                 kDenseBlocks, kExpertNorm, kExpertGating, kSharedCount,
                                 kSharedLength, kRopeDimension, kRopeScaling}),
          .writes = rms ? +with_rms : +without,
          .unread = attention_biases(),
          .needs_experts = true,
          .turns_dense = true,
          .lists_windows = true,
          .turns_windows = true};
}

}  // namespace

const FamilySpec kFamily = {.types = {{.name = "cohere2_moe",
                                       .defaults = R"({"vocab_size": 256000, "hidden_size": 8192,
                               "intermediate_size": 22528, "moe_intermediate_size": 22528,
                               "logit_scale": 0.0625, "num_hidden_layers": 40,
                               "num_attention_heads": 64, "head_dim": 128,
                               "max_position_embeddings": 8192, "tie_word_embeddings": true,
                               "sliding_window": 4096, "sliding_window_pattern": 4,
                               "prefix_dense_sliding_window_pattern": 1,
                               "first_k_dense_replace": 0, "num_experts": 8,
                               "num_experts_per_tok": 2, "num_shared_experts": 0,
                               "shared_expert_combination_strategy": "average",
                               "expert_selection_fn": "softmax", "norm_topk_prob": true})",
                                       .names = {{"moe_intermediate_size", {"intermediate_size"}}},
                                       .unread = {"rope_scaling"},
                                       .window = WindowRule::kPattern,
                                       .lists_layers = true,
                                       .attention_bias = true,
                                       .layers = layers,
                                       .rope_layers = RopeLayers::kSlidingOrDense,
                                       .experts = ExpertRule::kTyped,
                                       .read = read}},
                            .components = {{.rules = rules, .build = build}},
                            .gguf = {gguf(/*rms=*/false), gguf(/*rms=*/true)}};

}  // namespace ferry::converters::families::cohere2_moe
