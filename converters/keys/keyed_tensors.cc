#include "converters/keys/keyed_tensors.h"

#include "graph/recipe.h"

namespace ferry::converters {

KeyedTensors key_by_name(const TensorSource& source) {
  KeyedTensors keyed;
  for (size_t i = 0; i < source.entries().size(); ++i) {
    keyed.tensors.push_back({source.entries()[i].name, graph::whole_tensor(source, i)});
  }
  return keyed;
}

std::vector<size_t> entry_index(const TensorSource& source, const KeyedTensors& keyed) {
  std::vector<size_t> begins = {0};
  for (const KeyedTensor& tensor : keyed.tensors) {
    const bool derived = graph::is_derived(tensor.recipe, source);
    const size_t count = derived ? graph::stored_entries_of(tensor.recipe, source).size() : 1;
    begins.push_back(begins.back() + count);
  }
  return begins;
}

}  // namespace ferry::converters
