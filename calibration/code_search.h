// choose_codes() chooses the codes and scales of a linear layer's weights for the least error of
// the layer's outputs, where rounding to the nearest code has the least error of the weights.
//
// For each row: the scale of each group is the best of a set under the squared error weighted by
// the diagonal of H; codes are chosen column by column by the factor of H (GPTQ, arXiv 2210.17323,
// with act order and static groups, so that the stored form has no order of columns); then scales
// and single codes are changed as long as the full error e H e^T falls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "calibration/moments.h"
#include "core/thread_pool.h"
#include "graph/quantization/scheme.h"

namespace ferry::calibration {

struct ChosenRows {
  std::vector<std::byte> codes, scales;  // as quantize_rows() stores them
  // The sum over all rows of e H e^T for these codes, and for those of quantize_rows().
  double error = 0, nearest_error = 0;
};

// `values` are whole rows of finite weights. Codes of a row depend on its values, the scheme and
// `factor` only. If the codes of quantize_rows() have the smaller error for a row, it gets these.
ChosenRows choose_codes(const graph::QuantizationScheme& scheme, std::span<const float> values,
                        const Factor& factor, ThreadPool& pool);

// Returns the sum over all rows of e H e^T for the codes of quantize_rows().
double nearest_error(const graph::QuantizationScheme& scheme, std::span<const float> values,
                     const Factor& factor, ThreadPool& pool);

}  // namespace ferry::calibration
