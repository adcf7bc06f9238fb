// The kernels of quantisation compute a scale for every group of consecutive values, then the
// codes. The results do not depend on the instruction set: lanes hold groups or elements, sums are
// sums of whole numbers or have one order, and no product is fused with a sum.
#pragma once

#include <cstddef>

#include "core/dtype.h"
#include "graph/quantization/scheme.h"

namespace ferry::graph {

// `count` consecutive groups of `size` finite values.
struct Groups {
  const float* values;
  size_t size;
  size_t count;
};

// The scale of a group of zeros, which is also the smallest scale of half-quadratic refinement.
inline constexpr float kZeroGroupScale = 0x1p-23f;
inline constexpr float kSmallestScale = 0x1p-126f;

// Computes the scales of least squared error among the candidates (search.cc), rounded to the
// stored type.
void search_scales(int bits, DType scale_dtype, const Groups& groups, float* scales);

struct Refinement {
  int bits, rounds;
  // Null, or one value for each round, which is raised to the largest relative change of a scale.
  float* changes = nullptr;
};

// Computes the half-quadratic scales.
void hqq_scales(const Refinement& refinement, const Groups& groups, float* scales);
// Computes the sum of each group of at least 8 values in the order of torch.sum over the innermost
// dimension.
void torch_sums(const Groups& groups, float* sums);

// Returns whether all values are finite.
bool all_finite(const float* values, size_t count);

// Computes code = value / scale, rounded to nearest even and clamped.
void encode_groups(int bits, NibbleOrder order, const Groups& groups, const float* scales,
                   std::byte* codes);

// Computes values = code * scale.
void decode_groups(int bits, NibbleOrder order, const std::byte* codes, const float* scales,
                   size_t size, size_t count, float* values);

}  // namespace ferry::graph
