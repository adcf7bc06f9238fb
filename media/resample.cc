#include "media/resample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

namespace ferry::media {
namespace {

constexpr int kPilBits = 22;
constexpr int kRowsPerItem = 16;

double sinc(double x) {
  if (x == 0) return 1;
  const double angle = x * std::numbers::pi;
  return std::sin(angle) / angle;
}

double lanczos(double x) { return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0; }

double bicubic(double x) {
  constexpr double kA = -0.5;
  x = std::abs(x);
  if (x < 1) return ((kA + 2) * x - (kA + 3)) * x * x + 1;
  return x < 2 ? (((x - 5) * x + 8) * x - 4) * kA : 0;
}

double triangle(double x) { return std::max(1 - std::abs(x), 0.0); }

struct Kernel {
  double support;
  double (*at)(double);
};
// In the order of Filter.
constexpr std::array<Kernel, 3> kKernels = {{{3, lanczos}, {2, bicubic}, {1, triangle}}};

// Output value i is computed from `count` input values, from index `first` on.
struct Taps {
  int first, count;
  size_t weights;  // index of the first weight
};

struct Pass {
  std::vector<Taps> taps;
  std::vector<int32_t> weights;  // in units of 2^-bits
  int bits = 0;

  const int32_t* weights_of(const Taps& t) const { return weights.data() + t.weights; }
};

// Rounds as the original implementations do, which differs from std::lround below -0.5.
int half_up(double x) { return static_cast<int>(x + 0.5); }  // NOLINT(bugprone-incorrect-roundings)

Taps taps_of(double centre, double reach, int in) {
  const int first = std::max(half_up(centre - reach), 0);
  return {first, std::min(half_up(centre + reach), in) - first, 0};
}

void append_weights(std::vector<double>& weights, const Taps& taps, double centre, double stretch,
                    const Kernel& kernel) {
  double sum = 0;
  for (int j = 0; j < taps.count; ++j) {
    const double weight = kernel.at((j + taps.first - centre + 0.5) * (1 / stretch));
    weights.push_back(weight);
    sum += weight;
  }
  if (sum == 0) return;
  for (size_t j = taps.weights; j < weights.size(); ++j) weights[j] /= sum;
}

// torchvision uses as many bits as keep the greatest weight below 2^15.
int bits_for(const std::vector<double>& weights, Backend backend) {
  if (backend == Backend::kPil) return kPilBits;
  double greatest = 0;
  for (const double weight : weights) greatest = std::max(greatest, weight);
  int bits = 0;
  while (bits < kPilBits && half_up(greatest * (1 << (bits + 1))) < 1 << 15) ++bits;
  return bits;
}

Pass make_pass(int in, int out, Filter filter, Backend backend) {
  const Kernel& kernel = kKernels[static_cast<size_t>(filter)];
  const double scale = static_cast<double>(in) / out;
  const double stretch = std::max(scale, 1.0);
  Pass pass;
  std::vector<double> weights;
  for (int i = 0; i < out; ++i) {
    const double centre = (i + 0.5) * scale;
    Taps taps = taps_of(centre, kernel.support * stretch, in);
    taps.weights = weights.size();
    append_weights(weights, taps, centre, stretch, kernel);
    pass.taps.push_back(taps);
  }
  pass.bits = bits_for(weights, backend);
  for (const double weight : weights) {
    pass.weights.push_back(
        static_cast<int32_t>(weight * (1 << pass.bits) + std::copysign(0.5, weight)));
  }
  return pass;
}

uint8_t to_level(int32_t sum, int bits) {
  return static_cast<uint8_t>(std::clamp(sum >> bits, 0, 255));
}

void resize_row(const uint8_t* from, uint8_t* to, const Pass& pass) {
  for (const Taps& taps : pass.taps) {
    const int32_t* weights = pass.weights_of(taps);
    const uint8_t* in = from + size_t{3} * static_cast<size_t>(taps.first);
    int32_t r = 1 << (pass.bits - 1), g = r, b = r;
    for (int j = 0; j < taps.count; ++j, in += 3) {
      r += in[0] * weights[j];
      g += in[1] * weights[j];
      b += in[2] * weights[j];
    }
    *to++ = to_level(r, pass.bits);
    *to++ = to_level(g, pass.bits);
    *to++ = to_level(b, pass.bits);
  }
}

// Computes one row of the output as a sum of input rows, in pieces that fit into the first-level
// cache.
void mix_rows(const Image& image, uint8_t* to, const Pass& pass, const Taps& taps) {
  constexpr size_t kPiece = 1024;
  std::array<int32_t, kPiece> sums;
  const int32_t* weights = pass.weights_of(taps);
  for (size_t begin = 0; begin < image.row_bytes(); begin += kPiece) {
    const size_t count = std::min(kPiece, image.row_bytes() - begin);
    std::fill_n(sums.begin(), count, 1 << (pass.bits - 1));
    for (int j = 0; j < taps.count; ++j) {
      const uint8_t* in = image.row(taps.first + j) + begin;
      for (size_t i = 0; i < count; ++i) sums[i] += in[i] * weights[j];
    }
    for (size_t i = 0; i < count; ++i) to[begin + i] = to_level(sums[i], pass.bits);
  }
}

template <class Row>
void for_each_row(int rows, ThreadPool& pool, Row&& row) {
  const int items = (rows + kRowsPerItem - 1) / kRowsPerItem;
  pool.parallel_for(static_cast<size_t>(items), [&](size_t item) {
    const int begin = static_cast<int>(item) * kRowsPerItem;
    for (int y = begin; y < std::min(begin + kRowsPerItem, rows); ++y) row(y);
  });
}

Image resize_width(const Image& image, int width, Filter filter, Backend backend,
                   ThreadPool& pool) {
  const Pass pass = make_pass(image.size.width, width, filter, backend);
  Image out = make_image({width, image.size.height});
  for_each_row(out.size.height, pool, [&](int y) { resize_row(image.row(y), out.row(y), pass); });
  return out;
}

Image resize_height(const Image& image, int height, Filter filter, Backend backend,
                    ThreadPool& pool) {
  const Pass pass = make_pass(image.size.height, height, filter, backend);
  Image out = make_image({image.size.width, height});
  for_each_row(height, pool, [&](int y) {
    mix_rows(image, out.row(y), pass, pass.taps[static_cast<size_t>(y)]);
  });
  return out;
}

// Pillow pull request 9549 defines this condition.
bool vertical_first(Size in, Size out, Backend backend) {
  return backend == Backend::kPil && out.height < in.height &&
         in.height - out.height > 2 * (in.width - out.width);
}

}  // namespace

Image resize(const Image& image, Size size, Filter filter, Backend backend, ThreadPool& pool) {
  if (size.width == image.size.width && size.height == image.size.height) return image;
  if (size.width == image.size.width) {
    return resize_height(image, size.height, filter, backend, pool);
  }
  if (size.height == image.size.height) {
    return resize_width(image, size.width, filter, backend, pool);
  }
  if (vertical_first(image.size, size, backend)) {
    const Image low = resize_height(image, size.height, filter, backend, pool);
    return resize_width(low, size.width, filter, backend, pool);
  }
  const Image narrow = resize_width(image, size.width, filter, backend, pool);
  return resize_height(narrow, size.height, filter, backend, pool);
}

}  // namespace ferry::media
