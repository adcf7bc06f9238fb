// adopt_quantized() makes a checkpoint of floats of one whose matrices are stored quantised: each
// of its quantised modules has a derived "weight". The other headers of this directory are its
// parts.
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
  KeyedTensors tensors;  // recipes over `source`
  std::vector<std::string> notes;
};

// `source` has the tensors as they are stored. kBadInput where the tensors of a module do not
// belong together by dtype and shape. kUnsupported where a module is quantised that the config says
// is not.
Result<AdoptedQuantized> adopt_quantized(std::unique_ptr<TensorSource> source,
                                         const QuantizationConfig& config);

}  // namespace ferry::converters
