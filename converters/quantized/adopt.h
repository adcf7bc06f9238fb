// adopt_quantized() makes a checkpoint whose matrices are stored quantised one of floats: each of
// its quantised modules has a derived "weight". The other headers of this directory are its parts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "converters/keys/keyed_tensors.h"
#include "converters/quantized/config.h"
#include "core/derived_source.h"
#include "core/result.h"

namespace ferry::converters {

struct AdoptedQuantized {
  std::unique_ptr<DerivedSource> source;
  KeyedTensors tensors;  // of `source`
  std::vector<std::string> notes;
};

// `source` has the tensors as they are stored. kBadInput where the tensors of a module do not
// belong together by dtype and shape, kUnsupported where the config says that a module is not
// quantised which is.
Result<AdoptedQuantized> adopt_quantized(std::unique_ptr<TensorSource> source,
                                         const QuantizationConfig& config);

}  // namespace ferry::converters
