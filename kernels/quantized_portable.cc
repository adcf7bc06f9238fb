// Rows of activations and products in plain C++, for processors without any of the instruction
// sets, and for group sizes that the other instruction sets do not support.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/quantized_kernels.h"

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
  constexpr size_t kHalf = kSplitColumns / 2;
  for (size_t k = 0; k < row.padded; k += kSplitColumns) {
    const int8_t* codes = row.codes() + k;
    int8_t* split = row.split_codes() + k;
    for (size_t i = 0; i < kHalf; ++i) {
      split[i] = codes[2 * i];
      split[kHalf + i] = codes[2 * i + 1];
    }
    for (size_t lane = 0; lane < kHalf / 4; ++lane) {
      int32_t sum = 0;
      for (size_t i = 4 * lane; i < 4 * lane + 4; ++i) sum += split[i] + split[kHalf + i];
      row.split_offsets()[k / 8 + lane] = -8 * sum;
    }
  }
}

void widen_codes(const ActivationRow& row) {
  for (size_t k = 0; k < row.padded; ++k) row.wide_codes()[k] = row.codes()[k];
}

void split_eights(const ActivationRow& row) {
  for (size_t k = 0; k < row.padded; ++k) {
    row.split_eights()[k] = row.codes()[k / 8 * 8 + k % 4 * 2 + k % 8 / 4];
  }
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

// -- products

namespace {

int32_t code4(const uint8_t* codes, size_t k) { return (codes[k / 2] >> (k % 2 * 4) & 15) - 8; }
int32_t code8(const uint8_t* codes, size_t k) { return static_cast<int8_t>(codes[k]); }

template <int32_t (*kCode)(const uint8_t*, size_t)>
int32_t dot(const uint8_t* codes, size_t begin, size_t end, const int8_t* x) {
  int32_t sum = 0;
  for (size_t k = begin; k < end; ++k) sum += kCode(codes, k) * x[k];
  return sum;
}

template <int32_t (*kCode)(const uint8_t*, size_t)>
float sum_groups(const CodedMatrix& m, size_t n, const int8_t* x) {
  const Groups groups(m);
  float sums[kPartialSums] = {};
  for (size_t g = 0; g < groups.count; ++g) {
    const int32_t sum =
        dot<kCode>(row_codes(m, n), g * groups.columns, (g + 1) * groups.columns, x);
    const float scale = scale_at(m, n * groups.count + g), value = static_cast<float>(sum);
    float& partial = sums[g % kPartialSums];
    partial = std::fma(value, scale, partial);
  }
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

float output(const CodedProduct& p, size_t n, const ActivationRow& row) {
  const CodedMatrix& m = *p.matrix;
  const QuantizedRow& scale = row.head().row;
  if (m.bits == 4) return group_result(p, scale, sum_groups<code4>(m, n, row.codes()), n);
  if (p.sums != nullptr || p.code_sums == nullptr) {
    return group_result(p, scale, sum_groups<code8>(m, n, row.codes()), n);
  }
  const auto columns = static_cast<size_t>(m.columns);
  return row_result(p, scale, dot<code8>(row_codes(m, n), 0, columns, row.codes()), n);
}

void product(const CodedProduct& p, const Activations& x, size_t begin, size_t end) {
  for (size_t i = 0; i < x.rows; ++i) {
    float* out = p.out + i * static_cast<size_t>(p.matrix->rows);
    for (size_t n = begin; n < end; ++n) out[n] = output(p, n, x.row(i));
  }
}

void code_sums(const CodedMatrix& m, size_t begin, size_t end, int32_t* sums) {
  for (size_t n = begin; n < end; ++n) {
    const auto* codes = reinterpret_cast<const int8_t*>(row_codes(m, n));
    int32_t sum = 0;
    for (int64_t k = 0; k < m.columns; ++k) sum += codes[k];
    sums[n] = sum;
  }
}

}  // namespace

void quantize_plainly(const float* x, size_t columns, bool few, const ActivationRow& row) {
  row.head().row = quantize_row({x, columns}, {row.codes(), columns});
  std::fill(row.codes() + columns, row.codes() + row.padded, int8_t{0});
  sum_blocks(row);
  if (few) return split_codes(row);
  widen_codes(row);
}

const InstructionSet& quantized_portable() {
  static constexpr InstructionSet set{"plain C++", quantize_plainly, product, product,
                                      product,     product,          8,       code_sums};
  return set;
}

}  // namespace ferry::kernels
