// undo_keys(): the reverse of map_keys(). Tensors under the keys of a Hugging Face checkpoint, made
// of the weights of a model by the rules of its family. Works on metadata and reads no weight.
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

struct UndoneTensor {
  KeyedTensor tensor;
  std::vector<std::string> weights;  // that it is made of
  // A step was undone by computing: values are those of the checkpoint but for rounding.
  bool computed = false;
};

// Of the rules that make a weight, that one is undone whose key is in `known`; else the first one
// of the layout that checkpoints of the family have. A target of `ties` is left out unless its key
// is known. A step that a recipe ends with is taken off; any other one is undone by another step.
// kUnsupported, with the weight, where no rule makes it, or one that cannot be undone.
Result<std::vector<UndoneTensor>> undo_keys(const graph::StateDict& weights,
                                            const ModelConfig& config,
                                            const std::vector<KeyRule>& rules,
                                            const std::vector<TieRule>& ties,
                                            const std::set<std::string>& known);

}  // namespace ferry::converters
