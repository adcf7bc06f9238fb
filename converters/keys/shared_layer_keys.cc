// The keys of layers with keys and values of their own, where others attend to those
// (blocks/shared_layers.h).
#include <fmt/format.h>

#include "converters/blocks/shared_layers.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {
namespace {

constexpr const char* kOfEarlierLayer = "the layer attends to keys and values of an earlier one";

// Renames of a matrix and, where the config asks for it, of its bias.
std::vector<KeyRule> matrix_rules(const ModelConfig& config, const std::string& prefix,
                                  const char* source, const char* target) {
  return parameter_rules(prefix, config.attention_bias, {{source, target}});
}

}  // namespace

std::vector<KeyRule> shared_layer_rules(const ModelConfig& config, const std::string& prefix) {
  const int64_t first = first_shared_layer(config);
  std::vector<KeyRule> rules = concat(
      {matrix_rules(config, prefix, "layers.{i}.self_attn.k_proj", "layers.{i}.attention.wk"),
       rename_rules(prefix, {{"layers.{i}.self_attn.k_norm.weight",
                              "layers.{i}.attention.k_norm.weight"}})});
  if (config.number(kKeysAreValues) == 0) {
    rules = concat({rules, matrix_rules(config, prefix, "layers.{i}.self_attn.v_proj",
                                        "layers.{i}.attention.wv")});
  }
  for (KeyRule& rule : rules) rule.layers = first;
  for (int64_t layer = 0; layer < first && config.number(kKeysAreValues) != 0; ++layer) {
    if (!has_value_matrix(config, layer)) continue;
    const std::string source = fmt::format("layers.{}.self_attn.v_proj", layer);
    const std::string target = fmt::format("layers.{}.attention.wv", layer);
    rules = concat({rules, matrix_rules(config, prefix, source.c_str(), target.c_str())});
  }
  for (int64_t layer = first; layer < config.num_layers; ++layer) {
    for (const char* name : {"k_proj", "v_proj", "k_norm", "v_norm"}) {
      rules.push_back(drop_rule(fmt::format("{}layers.{}.self_attn.{}.*", prefix, layer, name),
                                kOfEarlierLayer));
    }
  }
  return rules;
}

}  // namespace ferry::converters
