// KeyedTensors: a checkpoint as key rules see it. Each tensor has the key of a Hugging Face
// checkpoint and a recipe over the tensors of the files.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/tensor_source.h"
#include "graph/recipe.h"

namespace ferry::converters {

struct KeyedTensor {
  std::string key;
  graph::Recipe recipe;
  // The reason why the tensor makes no weight, where its format and not a rule of the family says
  // so.
  std::string unused = {};
};

struct KeyedTensors {
  std::vector<KeyedTensor> tensors = {};
  // Names in the file by key, for every key of the model, where the format has names of its own.
  // Messages about keys that are not in the file use them.
  std::unordered_map<std::string, std::string> names = {};
};

// Gives every tensor its own name as the key.
KeyedTensors key_by_name(const TensorSource& source);

// Returns where the entries of each tensor begin in MappingReport::entries, and behind them where
// the last ones end. A derived tensor has an entry for each stored tensor that it is made of, other
// tensors have one.
std::vector<size_t> entry_index(const TensorSource& source, const KeyedTensors& keyed);

}  // namespace ferry::converters
