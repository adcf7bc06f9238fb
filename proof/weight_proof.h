// Derives every weight of a bundle again from the source and compares it bit for bit. For quantised
// weights it also measures how far the codes are from the source's values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "graph/quantization/scheme.h"
#include "packer/bundle_reader.h"
#include "plan/conversion.h"
#include "proof/progress.h"

namespace ferry::proof {

// Sums over values, in the order in which the values are added.
struct SquaredError {
  double signal = 0, noise = 0;  // sums of squares of the values and of the differences
  int64_t values = 0;

  void add(const SquaredError& other);
  double sqnr_db() const;  // limited as proof::ValueMetrics::sqnr_db
};

// The group with the largest relative error, which is the rms of the differences divided by the rms
// of the values. A group of zeros counts only if its codes do not stand for zeros.
struct WorstGroup {
  int64_t row = 0, group = 0;  // `group` is the index in the row
  double relative = 0;         // proof::kBeyondAnyBound for a group of zeros
};

// The distance between the values of codes and scales and the checkpoint's values.
struct QuantizationError {
  std::string name;    // name of the weight
  std::string scheme;  // as in recipes, such as "quantize i4 group 32 bf16 bf16_first low_first"
  int64_t layer = -1;  // -1: in no layer
  SquaredError sums;
  WorstGroup worst;
  // Number of values for which another code of the same scale is nearer, and the position of the
  // first. The number is 0 if codes are chosen correctly, whatever the scales are.
  int64_t misplaced = 0, misplaced_row = 0, misplaced_column = 0;

  // Number of groups whose error exceeds that of rounding to nearest by the plainest scale, which
  // maps the largest value to the last code; the scales of these groups are wrong. And the position
  // of the first.
  int64_t coarse = 0, coarse_row = 0, coarse_group = 0;

  // Adds whole rows from `first` on: values of the checkpoint, and the bytes of codes and scales.
  void add_rows(const graph::QuantizationScheme& coding, int64_t first, int64_t columns,
                std::span<const float> values, std::span<const std::byte> codes,
                std::span<const std::byte> scales);
};

// Returns the layer of a name that begins with "layers.N."; -1 for other names.
int64_t layer_of(const std::string& weight);

// Returns the sums over all weights of a layer, by layer.
std::map<int64_t, SquaredError> by_layer(const std::vector<QuantizationError>& errors);

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
