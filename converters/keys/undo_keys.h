// undo_keys() reverses map_keys(): it makes tensors under the keys of a Hugging Face checkpoint
// from the weights of a model, by the rules of its family. It works on metadata and reads no
// weight.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "converters/config/model_config.h"
#include "converters/keys/key_rule.h"
#include "converters/keys/keyed_tensors.h"
#include "core/result.h"
#include "graph/recipe.h"

namespace ferry::converters {

// The name of rules for a form of tensors that only files of other dialects have, such as a matrix
// for each expert where checkpoints have all experts in one tensor: a checkpoint gets the form of
// another rule.
inline constexpr const char* kDialectRule = "form of a dialect";

// Returns the rules under that name.
std::vector<KeyRule> dialect_rules(std::vector<KeyRule> rules);

struct UndoneTensor {
  KeyedTensor tensor;
  std::vector<std::string> weights;  // weights that the tensor is made of
  // True if a step was undone by computing: the values then are those of the checkpoint but for
  // rounding.
  bool computed = false;
};

// If several rules make a weight, the one is undone whose key is in `known`; else the first one of
// the layout that checkpoints of the family have. A target of `ties` is left out unless its key is
// known. A step of the rule that the recipe ends with is taken off; any other step is undone by its
// reverse. kUnsupported, with the weight, where no rule makes it, or the rule cannot be undone.
Result<std::vector<UndoneTensor>> undo_keys(const graph::StateDict& weights,
                                            const ModelConfig& config,
                                            const std::vector<KeyRule>& rules,
                                            const std::vector<TieRule>& ties,
                                            const std::set<std::string>& known);

}  // namespace ferry::converters
