// K-EXAONE: EXAONE 4 with norms before the blocks, and experts of DeepSeek V3.
// Source: transformers, models/exaone_moe/modeling_exaone_moe.py.

#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::exaone_moe {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr GgufName kBiasGguf[] = {
    {"blk.{i}.exp_probs_b.bias", "model.layers.{i}.mlp.e_score_correction_bias"},
};

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat({dots1::kFamily.text_decoder().rules(config, prefix),
                 rename_rules(prefix, {{"layers.{i}.mlp.e_score_correction_bias",
                                        "layers.{i}.feed_forward.gate.choice_bias"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return dots1::kFamily.text_decoder().build(config, options);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "exaone_moe",
               .defaults = R"({"vocab_size": 102400, "hidden_size": 4096,
                               "intermediate_size": 16384, "num_hidden_layers": 32,
                               "num_attention_heads": 32, "num_key_value_heads": 32,
                               "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
                               "sliding_window": 4096, "sliding_window_pattern": 4,
                               "first_k_dense_replace": 1, "moe_intermediate_size": 1024,
                               "num_experts": 64, "num_experts_per_tok": 8,
                               "n_shared_experts": 1, "norm_topk_prob": true,
                               "routed_scaling_factor": 2.5, "n_group": 1, "topk_group": 1})",
               .names = {{"n_shared_experts", {"num_shared_experts"}}},
               .unread = {"num_nextn_predict_layers"},
               .window = WindowRule::kPattern,
               .lists_layers = true,
               .rope_layers = RopeLayers::kSlidingIfAny,
               .experts = ExpertRule::kTyped,
               .read = read_sigmoid_experts}},
    .components = {{.rules = rules, .build = build}},
    .dropped = {{"mtp.*", "multi-token prediction: not part of the model's output"}},
    .gguf = {{.name = "exaone-moe",
              .tables = {kFrame, kAttention, kValueAndOutput, kPreNorm, kMlp, kBiasGguf,
                         kSharedExperts, kExperts},
              .grouped_experts = true,
              .sigmoid_experts = true,
              .states_gating = true,
              .window_every = 4,
              .predicting = "blk.",
              .keys = standard_keys({kVocabulary, kWindow, kWindowPattern, kExpertLength,
                                     kSharedCount, kSharedLength, kExpertScale, kExpertNorm,
                                     kDenseBlocks, kPredictingLayers, kRopeScaling}),
              .own_head = true,
              .needs_experts = true,
              .lists_windows = true,
              .turns_windows = true}}};

}  // namespace ferry::converters::families::exaone_moe
