// Checks the values that a conversion has written. Private to packer/.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "packer/non_finite.h"
#include "packer/weight_files.h"

namespace ferry::packer {

// The names of a written weight for messages.
struct WrittenWeight {
  std::string name;                  // name in the output; empty if it has none
  std::vector<std::string> sources;  // keys of the checkpoint
  DType dtype = DType::kF32;         // dtype as stored
};

// Both spans are indexed by weight. kUnsupported, with every weight, if a cast has made infinities
// of finite values, or if NaN or infinity was quantised.
Status check_values(std::span<const WrittenWeight> weights, std::span<const NonFiniteCount> counts,
                    const TensorSource& source);

// Returns the weights whose stored values are not all finite.
std::vector<NonFiniteWeight> non_finite_weights(std::span<const WrittenWeight> weights,
                                                std::span<const NonFiniteCount> counts);

}  // namespace ferry::packer
