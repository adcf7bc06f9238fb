// Quantises rows of activations in plain C++.
#include "kernels/quantized_row.h"

#include <bit>
#include <limits>

namespace ferry::kernels {
namespace {

// Rounds to the nearest integer, halves to even, for |x| < 2^22.
float nearest(float x) {
  constexpr float kShift = 0x1.8p23f;
  return (x + kShift) - kShift;
}

float clamp_code(float x) { return x < -128.0f ? -128.0f : x > 127.0f ? 127.0f : x; }

}  // namespace

RowScale row_scale(float low, float high, bool finite) {
  const float range = high - low;
  if (!finite || !(range <= std::numeric_limits<float>::max())) {
    return {0.0f, 0, {std::numeric_limits<float>::quiet_NaN(), 0}};
  }
  const float scale = range < 0x1p-120f ? 1.0f : 255.0f / range;
  const float below = low * scale, above = high * scale;
  const bool from_low = (-128.0f + below) + (127.0f + above) > 0;
  const float zero = nearest(clamp_code(from_low ? -128.0f - below : 127.0f - above));
  return {scale, static_cast<int32_t>(zero), {1.0f / scale, static_cast<int32_t>(zero)}};
}

QuantizedRow quantize_row(std::span<const float> row, std::span<int8_t> codes) {
  float low = 0, high = 0;
  bool finite = true;
  for (const float x : row) {
    low = x < low ? x : low;
    high = x > high ? x : high;
    finite &= (std::bit_cast<uint32_t>(x) & 0x7f800000u) != 0x7f800000u;
  }
  const RowScale scale = row_scale(low, high, finite);
  if (scale.factor == 0) {
    for (int8_t& code : codes) code = 0;
    return scale.row;
  }
  const auto zero_point = static_cast<float>(scale.zero_point);
  for (size_t i = 0; i < row.size(); ++i) {
    codes[i] = static_cast<int8_t>(clamp_code(nearest(row[i] * scale.factor) + zero_point));
  }
  return scale.row;
}

void split_codes(const ActivationRow& row) {
  for (size_t k = 0; k < row.padded; k += 64) {
    const int8_t* codes = row.codes() + k;
    int8_t* split = row.split_codes() + k;
    for (size_t i = 0; i < 32; ++i) {
      split[i] = codes[2 * i];
      split[32 + i] = codes[2 * i + 1];
    }
    for (size_t lane = 0; lane < 8; ++lane) {
      int32_t sum = 0;
      for (size_t i = 4 * lane; i < 4 * lane + 4; ++i) sum += split[i] + split[32 + i];
      row.split_offsets()[k / 8 + lane] = -8 * sum;
    }
  }
}

void widen_codes(const ActivationRow& row) {
  for (size_t k = 0; k < row.padded; ++k) row.wide_codes()[k] = row.codes()[k];
}

void sum_blocks(const ActivationRow& row) {
  int32_t total = 0;
  for (size_t block = 0; block < row.padded / kBlockColumns; ++block) {
    int32_t sum = 0;
    const int8_t* codes = row.codes() + block * kBlockColumns;
    for (size_t i = 0; i < kBlockColumns; ++i) sum += codes[i];
    row.block_offsets()[block] = -8 * sum;
    total += sum;
  }
  row.head().sum = total;
}

}  // namespace ferry::kernels
