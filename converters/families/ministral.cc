// Ministral: Mistral whose config lists the layers with a sliding window. Ministral 3: Mistral
// whose queries grow with the position, by llama_4_scaling_beta.
// Source: transformers, models/ministral/modeling_ministral.py and
// models/ministral3/modeling_ministral3.py.

#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"

namespace ferry::converters::families::ministral {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr const char* kVision = "vision: only the text part is built";

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return mistral::kFamily.text_decoder().rules(config, prefix);
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return mistral::kFamily.text_decoder().build(config, options);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "ministral",
               .defaults = R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
                               "num_hidden_layers": 32, "num_attention_heads": 32,
                               "num_key_value_heads": 8, "max_position_embeddings": 131072,
                               "sliding_window": 4096})",
               .window = WindowRule::kAll,
               .lists_layers = true},
              {.name = "ministral3",
               .wrapper = {.name = "mistral3", .tied = true},
               .defaults = R"({"vocab_size": 131072, "hidden_size": 4096,
                               "intermediate_size": 14336, "num_hidden_layers": 34,
                               "num_attention_heads": 32, "num_key_value_heads": 8,
                               "head_dim": 128, "max_position_embeddings": 262144,
                               "rms_norm_eps": 1e-5,
                               "rope_parameters": {"type": "yarn", "rope_theta": 1000000.0,
                                 "factor": 16.0, "original_max_position_embeddings": 16384,
                                 "beta_fast": 32.0, "beta_slow": 1.0, "mscale_all_dim": 1.0,
                                 "mscale": 1.0, "llama_4_scaling_beta": 0.1}})",
               .rope = RopeRule::kGrowing,
               .window = WindowRule::kAll}},
    .components = {{.prefixes = {"model.", "model.language_model.", "language_model.model."},
                    .heads = {"lm_head.weight", "language_model.lm_head.weight"},
                    .rules = rules,
                    .build = build}},
    .dropped = {{"model.vision_tower.*", kVision},
                {"vision_tower.*", kVision},
                {"model.multi_modal_projector.*", kVision},
                {"multi_modal_projector.*", kVision}},
    .classifiers = {{"Ministral", score_head}},
    .gguf = {{.name = "mistral3",
              .model_type = "ministral3",
              .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kMlp},
              .log_multiplier = 1,
              .sign = GgufSign::kGrowingQueries,
              .own_keys = GgufOwnKeys::kGrowingQueries,
              .keys = llama_keys({kYarnMultiplier, kQueryGrowth}),
              .rope_factors = true}}};

}  // namespace ferry::converters::families::ministral
