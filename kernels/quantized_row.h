// Rows of activations as codes, in the forms that the products read.
#pragma once

#include "kernels/quantized_kernels.h"

namespace ferry::kernels {

// `factor` 0: the row has no scale, its codes are 0.
struct RowScale {
  float factor;
  int32_t zero_point;
  QuantizedRow row;
};
// `low` and `high`: the least and the greatest value of a row, and 0.
RowScale row_scale(float low, float high, bool finite);

// From row.codes(), which are padded.
void split_codes(const ActivationRow& row);
void widen_codes(const ActivationRow& row);
void sum_blocks(const ActivationRow& row);

// InstructionSet::quantize in plain C++.
void quantize_plainly(const float* x, size_t columns, bool few, const ActivationRow& row);

}  // namespace ferry::kernels
