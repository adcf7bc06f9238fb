// Quantises rows of activations into the forms that the products read.
#pragma once

#include "kernels/quantized_kernels.h"

namespace ferry::kernels {

// A `factor` of 0 means that the row has no scale and its codes are 0.
struct RowScale {
  float factor;
  int32_t zero_point;
  QuantizedRow row;
};
// `low` and `high` are the least and the greatest of the row's values and 0.
RowScale row_scale(float low, float high, bool finite);

// Computes row.split_codes() from row.codes(), which are padded.
void split_codes(const ActivationRow& row);
void widen_codes(const ActivationRow& row);
void sum_blocks(const ActivationRow& row);

// Implements InstructionSet::quantize in plain C++.
void quantize_plainly(const float* x, size_t columns, bool few, const ActivationRow& row);

}  // namespace ferry::kernels
