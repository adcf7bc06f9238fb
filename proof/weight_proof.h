// Every weight of a bundle, derived again from the source and compared bit for bit; and of those
// that are quantised, how far the codes are from the source's values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "plan/conversion.h"
#include "proof/progress.h"
#include "proof/quantization_error.h"

namespace ferry::proof {

struct WeightProof {
  uint64_t tensors = 0, bytes = 0;     // compared; codes and scales are two tensors
  std::vector<std::string> different;  // a line for each weight that is not what the source gives
  // An error for each stored weight, in the order of the manifest, also for weights that share
  // bytes.
  std::vector<QuantizationError> errors;
  bool ok() const { return different.empty(); }
};

// Memory is that of a few tiles for each thread. `progress` counts stored bytes. Results do not
// depend on their number. kIo if the source changes meanwhile.
Result<WeightProof> prove_weights(ThreadPool& pool, const packer::Bundle& bundle,
                                  const plan::Conversion& conversion,
                                  const Progress& progress = {});

}  // namespace ferry::proof
