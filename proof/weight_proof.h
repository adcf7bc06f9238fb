// Derives every weight of a bundle again from the source and compares it bit for bit. For quantised
// weights it also measures how far the codes are from the source's values.
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
  uint64_t tensors = 0, bytes = 0;     // amounts compared; codes and scales are two tensors
  std::vector<std::string> different;  // one line per weight that differs from the source
  // One error per stored weight, in the order of the manifest. Weights that share bytes have an
  // error each.
  std::vector<QuantizationError> errors;
  bool ok() const { return different.empty(); }
};

// Needs the memory of a few tiles per thread. `progress` counts stored bytes. Results do not depend
// on the number of threads. kIo if the source changes meanwhile.
Result<WeightProof> prove_weights(ThreadPool& pool, const packer::Bundle& bundle,
                                  const plan::Conversion& conversion,
                                  const Progress& progress = {});

}  // namespace ferry::proof
