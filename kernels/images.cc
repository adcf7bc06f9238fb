#include "kernels/images.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/compute.h"
#include "kernels/compute_scratch.h"
#include "kernels/kernel.h"
#include "kernels/strided_copy.h"

namespace ferry::kernels {
namespace {

bool inside(int64_t at, int64_t size) { return at >= 0 && at < size; }

bool is_plain_window(const Window& w) {
  return w.kernel == 1 && w.stride == 1 && w.before == 0 && w.in == w.out;
}

// The images and filters of one group.
struct Patches {
  const Windows& windows;
  const ChannelGroups& channels;
  bool transposed;
  const float* image;  // the first channel of the group

  int64_t stride() const { return channels.groups * channels.inputs; }
  int64_t length() const { return windows.y.kernel * windows.x.kernel * channels.inputs; }

  // Copies the patch of one output position: [y, x, inputs].
  void copy(int64_t position, float* to) const {
    const Window &y = windows.y, &x = windows.x;
    const int64_t oy = position / x.out, ox = position % x.out;
    const auto bytes = static_cast<size_t>(channels.inputs) * sizeof(float);
    for (int64_t i = 0; i < y.kernel; ++i) {
      const int64_t iy = transposed ? y.source(oy, i) : y.position(oy, i);
      for (int64_t j = 0; j < x.kernel; ++j, to += channels.inputs) {
        const int64_t ix = transposed ? x.source(ox, j) : x.position(ox, j);
        if (inside(iy, y.in) && inside(ix, x.in)) {
          std::memcpy(to, image + (iy * x.in + ix) * stride(), bytes);
        } else {
          std::memset(to, 0, bytes);
        }
      }
    }
  }
};

void add_bias(const float* bias, float* rows, int64_t count, int64_t channels, ThreadPool& pool) {
  if (bias == nullptr) return;
  for_pieces(pool, count, std::max<int64_t>(1, (1 << 15) / channels),
             [&](int64_t begin, int64_t end) {
               for (int64_t i = begin; i < end; ++i) {
                 add_f32(rows + i * channels, bias, rows + i * channels, channels);
               }
             });
}

// Convolves one group of one image. `out` is its first output channel.
void convolve_group(const Patches& patches, const float* filters, float* out, ThreadPool& pool) {
  const int64_t outputs = patches.channels.outputs, groups = patches.channels.groups;
  const int64_t all = outputs * groups, length = patches.length();
  const int64_t positions = patches.windows.positions();
  const int64_t tile = tile_positions(positions, length);
  const Scratch rows(static_cast<size_t>(tile * length));
  const Scratch products(groups == 1 ? 0 : static_cast<size_t>(tile * outputs));
  for (int64_t first = 0; first < positions; first += tile) {
    const int64_t count = std::min(tile, positions - first);
    for_pieces(pool, count, std::max<int64_t>(1, 16384 / length), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) patches.copy(first + i, rows.data() + i * length);
    });
    float* to = groups == 1 ? out + first * all : products.data();
    linear(DType::kF32, rows.data(), filters, to, count, outputs, length, pool);
    if (groups == 1) continue;
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(to + i * outputs, outputs, out + (first + i) * all);
    }
  }
}

// Calls f(image row of the batch, output row) for every output row, on the pool. `cost` is that of
// one row in values.
template <class F>
void for_output_rows(const Windows& w, int64_t cost, ThreadPool& pool, const F& f) {
  for_pieces(pool, w.batch * w.y.out, std::max<int64_t>(1, 32768 / std::max<int64_t>(1, cost)),
             [&](int64_t begin, int64_t end) {
               for (int64_t row = begin; row < end; ++row) f(row / w.y.out, row % w.y.out, row);
             });
}

// Calls f(channels of an input position) for the positions of a window that are no padding.
template <class F>
void for_window(const Windows& w, int64_t channels, const float* image, int64_t oy, int64_t ox,
                const F& f) {
  const Window::Range ys = w.y.inside(oy), xs = w.x.inside(ox);
  for (int64_t i = ys.begin; i < ys.end; ++i) {
    for (int64_t j = xs.begin; j < xs.end; ++j) {
      const int64_t at = w.y.position(oy, i) * w.x.in + w.x.position(ox, j);
      f(image + at * channels, i * w.x.kernel + j);
    }
  }
}

}  // namespace

int64_t tile_positions(int64_t positions, int64_t patch) {
  constexpr int64_t kUsualValues = int64_t{1} << 18, kMostValues = int64_t{1} << 24;
  constexpr int64_t kLeastRows = 64;  // so that a product has enough of them
  const int64_t least = std::clamp<int64_t>(kMostValues / patch, 1, kLeastRows);
  return std::min(positions, std::max(least, kUsualValues / patch));
}

void convolve_image(const Windows& windows, const ChannelGroups& channels, bool transposed,
                    const float* image, const float* filters, const float* bias, float* out,
                    ThreadPool& pool) {
  const int64_t all = channels.groups * channels.outputs;
  const int64_t rows = windows.batch * windows.positions();
  if (channels.groups == 1 && is_plain_window(windows.y) && is_plain_window(windows.x)) {
    linear(DType::kF32, image, filters, out, rows, all, channels.inputs, pool);
    return add_bias(bias, out, rows, all, pool);
  }
  const int64_t in = windows.y.in * windows.x.in * channels.groups * channels.inputs;
  for (int64_t i = 0; i < windows.batch * channels.groups; ++i) {
    const int64_t b = i / channels.groups, g = i % channels.groups;
    const Patches patches{windows, channels, transposed, image + b * in + g * channels.inputs};
    convolve_group(patches, filters + g * channels.outputs * patches.length(),
                   out + b * windows.positions() * all + g * channels.outputs, pool);
  }
  add_bias(bias, out, rows, all, pool);
}

void convolve_channels(const Windows& windows, int64_t channels, int64_t multiplier,
                       const float* image, const float* filters, const float* bias, float* out,
                       ThreadPool& pool) {
  const int64_t all = channels * multiplier, size = windows.y.in * windows.x.in * channels;
  const int64_t cost = windows.x.out * all * windows.y.kernel * windows.x.kernel;
  for_output_rows(windows, cost, pool, [&](int64_t b, int64_t oy, int64_t row) {
    for (int64_t ox = 0; ox < windows.x.out; ++ox) {
      float* to = out + (row * windows.x.out + ox) * all;
      if (bias != nullptr) {
        std::copy_n(bias, all, to);
      } else {
        std::fill_n(to, all, 0.0F);
      }
      for_window(windows, channels, image + b * size, oy, ox, [&](const float* x, int64_t tap) {
        const float* w = filters + tap * all;
        if (multiplier == 1) {
          multiply_add_f32(x, w, to, all);
        } else {
          for (int64_t o = 0; o < all; ++o) to[o] += x[o / multiplier] * w[o];
        }
      });
    }
  });
}

void max_pool_image(const Windows& windows, int64_t channels, const float* image, float* out,
                    ThreadPool& pool) {
  const int64_t size = windows.y.in * windows.x.in * channels;
  for_output_rows(windows, windows.x.out * channels, pool, [&](int64_t b, int64_t oy, int64_t row) {
    for (int64_t ox = 0; ox < windows.x.out; ++ox) {
      float* to = out + (row * windows.x.out + ox) * channels;
      std::fill_n(to, channels, -std::numeric_limits<float>::infinity());
      for_window(windows, channels, image + b * size, oy, ox, [&](const float* x, int64_t) {
        for (int64_t c = 0; c < channels; ++c) to[c] = x[c] > to[c] || x[c] != x[c] ? x[c] : to[c];
      });
    }
  });
}

void average_pool_image(const Windows& windows, int64_t channels, const float* image, float* out,
                        ThreadPool& pool) {
  const int64_t size = windows.y.in * windows.x.in * channels;
  for_output_rows(windows, windows.x.out * channels, pool, [&](int64_t b, int64_t oy, int64_t row) {
    for (int64_t ox = 0; ox < windows.x.out; ++ox) {
      float* to = out + (row * windows.x.out + ox) * channels;
      std::fill_n(to, channels, 0.0F);
      int64_t count = 0;
      for_window(windows, channels, image + b * size, oy, ox, [&](const float* x, int64_t) {
        add_f32(to, x, to, channels);
        ++count;
      });
      const float share = 1.0F / static_cast<float>(std::max<int64_t>(count, 1));
      for (int64_t c = 0; c < channels; ++c) to[c] *= share;
    }
  });
}

Blend blend_of(int64_t o, int64_t in, int64_t out, bool align_corners, double scale) {
  float at = 0;
  if (align_corners) {
    const float step = out > 1 ? static_cast<float>(in - 1) / static_cast<float>(out - 1) : 0;
    at = static_cast<float>(o) * step;
  } else {
    at = (static_cast<float>(o) + 0.5F) * static_cast<float>(scale) - 0.5F;
    at = std::max(at, 0.0F);
  }
  const int64_t low = std::min(static_cast<int64_t>(at), in - 1);
  return {low, std::min(low + 1, in - 1), std::min(at - static_cast<float>(low), 1.0F)};
}

void resize_image(const Windows& windows, int64_t channels, bool align_corners, const float* image,
                  float* out, ThreadPool& pool) {
  const auto blend = [&](const Window& w, int64_t o) {
    return blend_of(o, w.in, w.out, align_corners,
                    static_cast<double>(w.in) / static_cast<double>(w.out));
  };
  const int64_t size = windows.y.in * windows.x.in * channels;
  for_output_rows(windows, windows.x.out * channels, pool, [&](int64_t b, int64_t oy, int64_t row) {
    const Blend y = blend(windows.y, oy);
    const float* top = image + b * size + y.low * windows.x.in * channels;
    const float* bottom = image + b * size + y.high * windows.x.in * channels;
    for (int64_t ox = 0; ox < windows.x.out; ++ox) {
      const Blend x = blend(windows.x, ox);
      const int64_t left = x.low * channels, right = x.high * channels;
      float* to = out + (row * windows.x.out + ox) * channels;
      for (int64_t c = 0; c < channels; ++c) {
        const float above = top[left + c] + (top[right + c] - top[left + c]) * x.share;
        const float below = bottom[left + c] + (bottom[right + c] - bottom[left + c]) * x.share;
        to[c] = above + (below - above) * y.share;
      }
    }
  });
}

}  // namespace ferry::kernels
