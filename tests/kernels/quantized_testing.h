// Products with coded matrices in plain loops, for comparison with the fast kernels.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/quantized_kernels.h"

namespace ferry::kernels {

struct Shape {
  int bits;
  int64_t rows, columns, group;
  DType scale_dtype = DType::kBF16;
};

// A matrix of random codes, extreme ones among them. One row is zeros, and one has the smallest
// codes.
struct TestMatrix {
  CodedMatrix coded;
  std::vector<std::byte> codes, scales;

  explicit TestMatrix(const Shape& s, uint32_t seed = 1) {
    std::minstd_rand random(seed);
    codes.resize(static_cast<size_t>(s.rows * s.columns * s.bits / 8));
    for (std::byte& b : codes) b = static_cast<std::byte>(random() >> 8);
    const size_t row = codes.size() / static_cast<size_t>(s.rows);
    const auto zero = static_cast<std::byte>(s.bits == 4 ? 0x88 : 0);
    const auto least = static_cast<std::byte>(s.bits == 4 ? 0 : 0x80);
    if (s.rows > 1) std::fill_n(codes.begin() + static_cast<ptrdiff_t>(row), row, zero);
    if (s.rows > 2) std::fill_n(codes.begin() + static_cast<ptrdiff_t>(2 * row), row, least);
    const size_t groups = static_cast<size_t>(s.group == 0 ? 1 : s.columns / s.group);
    for (size_t i = 0; i < static_cast<size_t>(s.rows) * groups; ++i) {
      add_scale(s.scale_dtype, 0.001f + static_cast<float>(random() % 1000) / 1e5f);
    }
    coded = {s.bits, s.rows, s.columns, s.group, s.scale_dtype, codes.data(), scales.data()};
  }

  void add_scale(DType dtype, float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const int bytes = dtype == DType::kBF16 ? 2 : 4;
    for (int i = 4 - bytes; i < 4; ++i) scales.push_back(static_cast<std::byte>(bits >> 8 * i));
  }

  int code(int64_t row, int64_t column) const {
    const auto at = static_cast<size_t>(row * coded.columns + column);
    if (coded.bits == 8) return static_cast<int8_t>(codes[at]);
    return static_cast<int>(codes[at / 2] >> (at % 2 * 4) & std::byte{15}) - 8;
  }

  int64_t group() const { return coded.group == 0 ? coded.columns : coded.group; }
  float scale(int64_t row, int64_t group_index) const {
    return scale_at(coded, static_cast<size_t>(row * (coded.columns / group()) + group_index));
  }
};

// Adds sums of groups in the order of quantized_kernels.h. x(k) is the code of column k, or 1
// for every column.
template <class X>
float sum_of_groups(const TestMatrix& w, int64_t n, const X& x) {
  float sums[8] = {};
  for (int64_t g = 0; g * w.group() < w.coded.columns; ++g) {
    int64_t sum = 0;
    for (int64_t k = g * w.group(); k < (g + 1) * w.group(); ++k) sum += x(k) * w.code(n, k);
    sums[g % 8] = std::fma(static_cast<float>(sum), w.scale(n, g), sums[g % 8]);
  }
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

inline float plain_product(const TestMatrix& w, int64_t n, const QuantizedRow& row,
                           const std::vector<int8_t>& codes) {
  const auto code = [&](int64_t k) -> int64_t { return codes[static_cast<size_t>(k)]; };
  if (w.coded.bits == 8 && w.coded.group == 0) {
    int64_t sum = 0;
    for (int64_t k = 0; k < w.coded.columns; ++k) sum += (code(k) - row.zero_point) * w.code(n, k);
    return static_cast<float>(sum) * row.inverse_scale * w.scale(n, 0);
  }
  const float ones = sum_of_groups(w, n, [](int64_t) { return int64_t{1}; });
  const float zero = static_cast<float>(row.zero_point) * ones;
  return (sum_of_groups(w, n, code) - zero) * row.inverse_scale;
}

// Computes out [m, rows] of dynamic_linear.
inline std::vector<float> plain_dynamic_linear(const std::vector<float>& x, int64_t m,
                                               const TestMatrix& w, const float* bias) {
  std::vector<float> out;
  const auto columns = static_cast<size_t>(w.coded.columns);
  std::vector<int8_t> codes(columns);
  for (int64_t i = 0; i < m; ++i) {
    const QuantizedRow row = quantize_row({x.data() + i * w.coded.columns, columns}, codes);
    for (int64_t n = 0; n < w.coded.rows; ++n) {
      const float value = plain_product(w, n, row, codes);
      out.push_back(bias != nullptr ? value + bias[n] : value);
    }
  }
  return out;
}

// Memory of `bytes` bytes that is aligned to 64.
class AlignedBytes {
 public:
  explicit AlignedBytes(uint64_t bytes) : memory_(bytes + 64) {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    bytes_ = std::span(memory_).subspan((64 - at % 64) % 64, bytes);
  }
  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> memory_;
  std::span<std::byte> bytes_;
};

inline std::vector<float> run_dynamic_linear(const InstructionSet& set, const std::vector<float>& x,
                                             int64_t m, const CodedMatrix& w, const float* bias,
                                             ThreadPool& pool) {
  const PackedMatrix packed = PackedMatrix::pack(w);
  std::vector<float> out(static_cast<size_t>(m * w.rows), -7.0f);
  const AlignedBytes scratch(dynamic_linear_scratch(m, w.columns));
  const LinearTask task{&packed, bias, out.data()};
  dynamic_linear_with(set, x.data(), m, w.columns, {&task, 1}, scratch.bytes(), pool);
  return out;
}

}  // namespace ferry::kernels
