#include "converters/keys/gpt_keys.h"

#include "converters/keys/standard_keys.h"

namespace ferry::converters {

std::vector<KeyRule> gpt_rules(const std::string& prefix) {
  return concat({rename_rules(prefix, {{"wte.weight", "tok_embeddings.weight"}}),
                 parameter_rules(prefix, /*bias=*/true,
                                 {{"h.{i}.ln_1", "layers.{i}.attention_norm"}, {"ln_f", "norm"}}),
                 derived_rules(prefix + "h.{i}.attn.")});
}

}  // namespace ferry::converters
