// Plain C++, for processors without any of the instruction sets, and for group sizes that the other
// instruction sets do not support.
#include <algorithm>
#include <cmath>

#include "kernels/quantized_row.h"
#include "kernels/quantized_targets.h"

namespace ferry::kernels {
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
