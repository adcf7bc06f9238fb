// Granite 3 with experts: Granite, with routed experts instead of every MLP. Gate and up of all
// experts are in one tensor. A shared expert may stand beside them. Source: transformers,
// models/granitemoe/modeling_granitemoe.py, models/granitemoeshared/modeling_granitemoeshared.py.

#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"

namespace ferry::converters::families::granitemoe {
namespace {

using namespace gguf_tables;

Status read(const JsonFields& fields, ModelConfig& config) {
  config.moe.scores = MoeConfig::Scores::kTopSoftmax;
  return granite::kFamily.types.front().read(fields, config);
}

Status read_shared(const JsonFields& fields, ModelConfig& config) {
  constexpr IntRange kRange = {0, kSizeRange.max};
  config.intermediate_size = FERRY_TRY(fields.integer_or("shared_intermediate_size", kRange, 0));
  config.moe.shared_size = config.intermediate_size;
  config.moe.shared_gate = false;
  return read(fields, config);
}

}  // namespace

const FamilySpec kFamily = {.types = {{.name = "granitemoe",
                                       .defaults = R"({"vocab_size": 32000, "hidden_size": 4096,
                               "num_hidden_layers": 32, "num_attention_heads": 32,
                               "max_position_embeddings": 2048, "num_experts": 8,
                               "num_experts_per_tok": 2, "moe_intermediate_size": 11008})",
                                       .names = {{"moe_intermediate_size", {"intermediate_size"}},
                                                 {"num_experts", {"num_local_experts"}}},
                                       .attention_bias = true,
                                       .experts = ExpertRule::kAll,
                                       .read = read},
                                      {.name = "granitemoeshared",
                                       .defaults = R"({"vocab_size": 32000, "hidden_size": 4096,
                               "num_hidden_layers": 32, "num_attention_heads": 32,
                               "max_position_embeddings": 2048, "num_experts": 8,
                               "num_experts_per_tok": 2, "moe_intermediate_size": 11008})",
                                       .names = {{"moe_intermediate_size", {"intermediate_size"}},
                                                 {"num_experts", {"num_local_experts"}}},
                                       .attention_bias = true,
                                       .experts = ExpertRule::kAll,
                                       .read = read_shared}},
                            .components = {{.rules = granite_moe_rules, .build = build_llama}},
                            .gguf = {{.name = "granitemoe",
                                      .tokenizer_keys = {.sentence_piece = true, .llama = true},
                                      .tables = {kFrame, kPairedAttention, kValueAndOutput,
                                                 kPreNorm, kGraniteExperts, kExpertWeights},
                                      .multipliers = true,
                                      .normed_experts = true,
                                      .own_keys = GgufOwnKeys::kExpertsAlone,
                                      .keys = granite_keys(),
                                      .rope_factors = true,
                                      .equal_heads = true},
                                     // Readers take the file for one of Granite 4 without Mamba.
                                     {.name = "granitemoe",
                                      .tokenizer_keys = {.sentence_piece = true, .llama = true},
                                      .model_type = "granitemoeshared",
                                      .tables = {kFrame, kPairedAttention, kValueAndOutput,
                                                 kPreNorm, kGraniteExperts, kExpertWeights},
                                      .multipliers = true,
                                      .normed_experts = true,
                                      .sign = GgufSign::kNever,
                                      .own_keys = GgufOwnKeys::kExpertsAlone,
                                      .keys = granite_keys({GgufKey::kSharedLength}),
                                      .rope_factors = true,
                                      .equal_heads = true}}};

}  // namespace ferry::converters::families::granitemoe
