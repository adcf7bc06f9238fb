// KeyedTensors: a checkpoint as key rules see it. Each tensor has the key of a Hugging Face
// checkpoint and a recipe over the tensors of the files.
#pragma once

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

}  // namespace ferry::converters
