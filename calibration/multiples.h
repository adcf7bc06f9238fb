// Sums of multiples of vectors. Elements are independent and products are rounded before they are
// added, so every instruction set gives the same bits.
#pragma once

#include <cstddef>

namespace ferry::calibration {

// Computes y[i] += factor * x[i].
void add_multiple(float factor, const float* x, float* y, size_t count);
// Computes y[i] += factors[k] * x[k * stride + i] for k from 0 to `terms` - 1, in this order.
void add_multiples(const float* factors, const float* x, size_t stride, size_t terms, float* y,
                   size_t count);

}  // namespace ferry::calibration
