// Operators on images in channels-last order, [batch, y, x, channels], in f32: the layout of
// XNNPACK's graphs. Callers check shapes; memory is aligned to f32, and outputs overlap no inputs.
// Every output element is summed in an order that depends on its own window only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/thread_pool.h"

namespace ferry::kernels {

// The windows of one spatial dimension. Window o covers the input's positions
// o * stride - before + i * dilation for i in [0, kernel); positions outside of the input are
// padding. In a transposed convolution input position p reaches the outputs
// p * stride - before + i * dilation.
struct Window {
  int64_t in = 1, out = 1;
  int64_t kernel = 1, stride = 1, dilation = 1;
  int64_t before = 0;

  int64_t position(int64_t o, int64_t i) const { return o * stride - before + i * dilation; }
  // Returns the input position that element i of the filter brings to output o of a transposed
  // convolution, or -1.
  int64_t source(int64_t o, int64_t i) const {
    const int64_t at = o + before - i * dilation;
    return at >= 0 && at % stride == 0 && at / stride < in ? at / stride : -1;
  }

  struct Range {
    int64_t begin, end;
  };
  // Returns the elements of window o that lie inside of the input. A kernel may be much larger than
  // its input, because padding counts.
  Range inside(int64_t o) const {
    const int64_t at = o * stride - before;
    const int64_t begin = at < 0 ? std::min((dilation - 1 - at) / dilation, kernel) : 0;
    const int64_t end = at < in ? std::min((in - 1 - at) / dilation + 1, kernel) : 0;
    return {begin, std::max(begin, end)};
  }
};

struct Windows {
  int64_t batch = 1;
  Window y, x;
  int64_t positions() const { return y.out * x.out; }
};

struct ChannelGroups {
  int64_t groups, inputs, outputs;  // channels of one group
};

// Returns of how many positions patches of `patch` values are made at a time: enough for a product,
// and no more than 64 MiB.
int64_t tile_positions(int64_t positions, int64_t patch);

// Convolves with `filters` [groups * outputs, y, x, inputs]; `bias` may be null.
void convolve_image(const Windows& windows, const ChannelGroups& channels, bool transposed,
                    const float* image, const float* filters, const float* bias, float* out,
                    ThreadPool& pool);

// Convolves every channel by itself, with `filters` [y, x, channels * multiplier]. Output channel o
// comes from input channel o / multiplier.
void convolve_channels(const Windows& windows, int64_t channels, int64_t multiplier,
                       const float* image, const float* filters, const float* bias, float* out,
                       ThreadPool& pool);

// Padding has no part in either. A window of nothing but padding gives minus infinity, or 0.
void max_pool_image(const Windows& windows, int64_t channels, const float* image, float* out,
                    ThreadPool& pool);
void average_pool_image(const Windows& windows, int64_t channels, const float* image, float* out,
                        ThreadPool& pool);

// The two positions between which an output position lies, and the share of the second.
struct Blend {
  int64_t low, high;
  float share;
};
// Returns where position `o` of a size `out` lies in one of `in`, for bilinear resizing: corners
// coincide, or else pixels are squares whose edges coincide, `scale` input pixels to a step.
Blend blend_of(int64_t o, int64_t in, int64_t out, bool align_corners, double scale);

void resize_image(const Windows& windows, int64_t channels, bool align_corners, const float* image,
                  float* out, ThreadPool& pool);

}  // namespace ferry::kernels
