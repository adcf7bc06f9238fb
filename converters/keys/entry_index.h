// Which entries of a mapping's account belong to which tensor.
#pragma once

#include <cstddef>
#include <vector>

#include "converters/keys/keyed_tensors.h"
#include "core/tensor_source.h"

namespace ferry::converters {

// Where the entries of each tensor begin in MappingReport::entries, and behind them where the last
// ones end. A derived tensor has an entry for each stored one that it is made of, others have one.
std::vector<size_t> entry_index(const TensorSource& source, const KeyedTensors& keyed);

}  // namespace ferry::converters
