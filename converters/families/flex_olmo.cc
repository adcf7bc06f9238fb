// FlexOlmo: OLMo 2 with routed experts instead of every MLP.
// Source: transformers, models/flex_olmo/modeling_flex_olmo.py.

#include "converters/families/families.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::flex_olmo {
namespace {

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {olmo2::kFamily.text_decoder().rules(config, prefix), expert_rules(prefix, config)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return olmo2::kFamily.text_decoder().build(config, options);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "flex_olmo",
               .defaults = R"({"vocab_size": 100352, "hidden_size": 4096,
                               "intermediate_size": 11008, "num_hidden_layers": 32,
                               "num_attention_heads": 32, "max_position_embeddings": 4096,
                               "rope_theta": 500000.0, "num_experts": 7,
                               "num_experts_per_tok": 5, "moe_intermediate_size": 11008})",
               // Every layer has experts, of the size of an MLP.
               .names = {{"num_experts", {"num_local_experts", "num_experts"}},
                         {"moe_intermediate_size", {"intermediate_size"}},
                         {"decoder_sparse_step", {}},
                         {"mlp_only_layers", {}}},
               .attention_bias = true,
               .experts = ExpertRule::kListed}},
    .components = {{.rules = rules, .build = build}}};

}  // namespace ferry::converters::families::flex_olmo
