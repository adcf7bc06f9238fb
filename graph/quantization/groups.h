// Kernels of the quantisation: for every group of consecutive values a scale, then the codes. What
// they compute does not depend on the instruction set: lanes hold groups or elements, sums are
// those of whole numbers or have one order, and no product is fused with a sum.
#pragma once

#include <cstddef>

#include "core/dtype.h"
#include "graph/quantization/scheme.h"

namespace ferry::graph {

// `count` groups of `size` finite values, one after the other.
struct Groups {
  const float* values;
  size_t size;
  size_t count;
};

// The scale of a group of zeros, and the smallest of half-quadratic refinement.
inline constexpr float kZeroGroupScale = 0x1p-23f;
inline constexpr float kSmallestScale = 0x1p-126f;

// The scales of least squared error among the candidates (search.cc), rounded to the stored type.
void search_scales(int bits, DType scale_dtype, const Groups& groups, float* scales);

struct Refinement {
  int bits, rounds;
  // Null, or a value for each round, which is raised to the largest relative change of a scale.
  float* changes = nullptr;
};

// The half-quadratic scales.
void hqq_scales(const Refinement& refinement, const Groups& groups, float* scales);
// The sum of each group of at least 8 values, as torch.sum over the innermost dimension.
void torch_sums(const Groups& groups, float* sums);

// Whether none of the values is NaN or infinite.
bool all_finite(const float* values, size_t count);

// code = value / scale, rounded to nearest even and clamped.
void encode_groups(int bits, NibbleOrder order, const Groups& groups, const float* scales,
                   std::byte* codes);

// values = code * scale
void decode_groups(int bits, NibbleOrder order, const std::byte* codes, const float* scales,
                   size_t size, size_t count, float* values);

}  // namespace ferry::graph
