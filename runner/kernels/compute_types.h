// What the compute kernels share between their per-target parts and their callers; not part of
// the interface.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"

namespace ferry::kernels {

struct BF16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

// No target has more f32 lanes. Rows that are copied are padded with zeros to a multiple.
constexpr size_t kMaxLanes = 16;

constexpr size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

// out[i, j] = x_i * w_j over k values. x is f32 and padded with zeros to a multiple of kMaxLanes; w
// and out have one type.
struct RowProducts {
  const float* x;
  size_t x_stride, m;
  const void* w;
  size_t w_stride;
  void* out;
  size_t out_stride, k;
};
constexpr size_t kMaxTileCols = 6;

// ---- linear

// x is f32 with rows of x_stride values, zero from k to the next multiple of kMaxLanes.
struct LinearArgs {
  DType dtype;
  const float* x;
  size_t x_stride;
  const void* w;
  void* out;
  size_t m, n, k;
};

// Blocks of a batch: kBlockRows of x by kBlockDepth of k stay in L2, one tile of weights in L1.
constexpr size_t kBlockRows = 128;
constexpr size_t kBlockDepth = 1024;
constexpr size_t kTaskCols = 24;  // a multiple of every tile width
constexpr size_t kMaxTaskCols = 48;

constexpr size_t block_scratch(size_t cols) {
  return kMaxTileCols * kBlockDepth + kBlockRows * cols * kMaxLanes;
}

// ---- depthwise convolution: x (channels, length), w (channels, kernel), bias may be null

struct ConvArgs {
  const float *x, *w, *bias;
  float* out;
  size_t length, kernel;
};

}  // namespace ferry::kernels
