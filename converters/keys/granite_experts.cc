#include "converters/keys/granite_experts.h"

#include "converters/blocks/decoder.h"
#include "converters/blocks/moe.h"
#include "converters/keys/packed_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {
namespace {

// Rules for gate and up in one tensor, and for GGUF, which has them in two.
std::vector<KeyRule> granite_mlp_rules(const std::string& layer, const ModelConfig& config) {
  const std::string mlp = layer + "shared_mlp.";
  std::vector<KeyRule> rules = concat(
      {packed_gate_up_rules(mlp + "input_linear", /*bias=*/false, PackedLayout::kConcatenated),
       rename_rules(mlp, {{"gate_proj.weight", "layers.{i}.feed_forward.w1.weight"},
                          {"up_proj.weight", "layers.{i}.feed_forward.w3.weight"}})});
  if (config.moe.experts == 0) {
    return concat({rules, rename_rules(mlp, {{"output_linear.weight",
                                              "layers.{i}.feed_forward.w2.weight"}})});
  }
  // In a model with experts, the MLP is a shared expert.
  for (KeyRule& rule : rules) {
    for (RuleTarget& target : rule.targets) target.name.insert(target.name.find(".w"), ".shared");
  }
  const std::string experts = layer + "block_sparse_moe.";
  return concat(
      {rules, fused_expert_rules(experts + "input_linear.weight", experts + "output_linear.weight"),
       stacked_expert_rules(experts + "experts.{e}.", "gate_proj.weight", "up_proj.weight",
                            "down_proj.weight"),
       rename_rules(mlp, {{"output_linear.weight", "layers.{i}.feed_forward.shared.w2.weight"}}),
       rename_rules(experts, {{"router.layer.weight", "layers.{i}.feed_forward.gate.weight"}})});
}

}  // namespace

std::vector<KeyRule> granite_moe_rules(const ModelConfig& config, const std::string& prefix) {
  return concat({llama_rules(config, prefix), granite_mlp_rules(prefix + "layers.{i}.", config)});
}

}  // namespace ferry::converters
