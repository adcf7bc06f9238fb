// Qwen3 with experts: the attention of Qwen3, routed experts in place of the MLP.
// Source: transformers, models/qwen3_moe/modeling_qwen3_moe.py.

#include "converters/blocks/moe.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families {
namespace {

std::vector<KeyRule> rules(const ModelConfig& config) {
  return concat({kQwen3.rules(config), expert_rules("model.", config)});
}

}  // namespace

const FamilySpec kQwen3Moe = {.model_types = {"qwen3_moe"},
                              .rules = rules,
                              .ties = standard_ties,
                              .build = [](const ModelConfig& config, const BuildOptions& options) {
                                return kQwen3.build(config, options);
                              }};

}  // namespace ferry::converters::families
