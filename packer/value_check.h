// What the values that have been written say about a conversion. Private to packer/.
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

// How messages name a weight that has been written.
struct WrittenWeight {
  std::string name;                  // in the output; empty where it has none
  std::vector<std::string> sources;  // keys of the checkpoint
  DType dtype = DType::kF32;         // as stored
};

// Both spans are indexed by weight. kUnsupported, with every weight: what is written must not hold
// infinities that nobody but the cast has made, nor codes of no value.
Status check_values(std::span<const WrittenWeight> weights, std::span<const NonFiniteCount> counts,
                    const TensorSource& source);

// The weights whose stored values are not all finite.
std::vector<NonFiniteWeight> non_finite_weights(std::span<const WrittenWeight> weights,
                                                std::span<const NonFiniteCount> counts);

}  // namespace ferry::packer
