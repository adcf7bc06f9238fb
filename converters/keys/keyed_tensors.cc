#include "converters/keys/keyed_tensors.h"

namespace ferry::converters {

KeyedTensors key_by_name(const TensorSource& source) {
  KeyedTensors keyed;
  for (size_t i = 0; i < source.entries().size(); ++i) {
    keyed.tensors.push_back({source.entries()[i].name, graph::whole_tensor(source, i)});
  }
  return keyed;
}

}  // namespace ferry::converters
