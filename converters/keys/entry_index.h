// entry_index() says which entries of a mapping's report belong to which tensor.
#pragma once

#include <cstddef>
#include <vector>

#include "converters/keys/keyed_tensors.h"
#include "core/tensor_source.h"

namespace ferry::converters {

// Returns where the entries of each tensor begin in MappingReport::entries, and behind them where
// the last ones end. A derived tensor has an entry for each stored tensor that it is made of, other
// tensors have one.
std::vector<size_t> entry_index(const TensorSource& source, const KeyedTensors& keyed);

}  // namespace ferry::converters
