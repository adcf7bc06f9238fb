// llama::fast_hadamard_transform: products of rows with a Hadamard matrix, in steps of sums and
// differences.
#include <array>
#include <bit>
#include <cmath>

#include "kernels/kernel.h"
#include "kernels/kernels.h"
#include "kernels/typed_values.h"

namespace ferry::kernels {
namespace {

constexpr int64_t kOrder = 28, kBlock = 7;

// Signs of Williamson's matrix of order 28: four by four blocks of order 7. Row i of a block is the
// first one turned right by i places.
constexpr std::string_view kCirculants[] = {"+------", "++----+", "+-+--+-", "+--++--"};
struct SignedBlock {
  int circulant;
  bool negative;
};
constexpr SignedBlock kWilliamson[4][4] = {
    {{0, false}, {1, false}, {2, false}, {3, false}},
    {{1, true}, {0, false}, {3, true}, {2, false}},
    {{2, true}, {3, false}, {0, false}, {1, true}},
    {{3, true}, {2, true}, {1, false}, {0, false}},
};

bool is_negative(int64_t row, int64_t column) {
  const SignedBlock block = kWilliamson[row / kBlock][column / kBlock];
  const int64_t at = (column % kBlock - row % kBlock + kBlock) % kBlock;
  return (kCirculants[block.circulant][static_cast<size_t>(at)] == '-') != block.negative;
}

// Multiplies `n` values, a power of two, by Sylvester's matrix over sqrt(n).
template <class C>
void sylvester(C* values, int64_t n) {
  for (int64_t step = 1; step < n; step *= 2) {
    for (int64_t block = 0; block < n; block += 2 * step) {
      for (int64_t i = block; i < block + step; ++i) {
        const C a = values[i], b = values[i + step];
        values[i] = a + b;
        values[i + step] = a - b;
      }
    }
  }
  if (n == 1) return;
  const C scale = C{1} / std::sqrt(static_cast<C>(n));
  for (int64_t i = 0; i < n; ++i) values[i] *= scale;
}

// Multiplies each column of 28 rows by Williamson's matrix, which nothing scales.
template <class C>
void williamson(C* values, int64_t columns) {
  std::array<C, kOrder> column;
  for (int64_t at = 0; at < columns; ++at) {
    for (int64_t i = 0; i < kOrder; ++i) {
      C sum = 0;
      for (int64_t j = 0; j < kOrder; ++j) {
        const C value = values[j * columns + at];
        sum += is_negative(i, j) ? -value : value;
      }
      column[static_cast<size_t>(i)] = sum;
    }
    for (int64_t i = 0; i < kOrder; ++i) values[i * columns + at] = column[static_cast<size_t>(i)];
  }
}

template <class C>
void transform_rows(const Call& call, const Tensor& self, int64_t width, Tensor& out) {
  const bool special = width % kOrder == 0;
  const int64_t power = special ? width / kOrder : width;
  const InputValues<C> in(self);
  OutputValues<C> result(out);
  for_pieces(call.pool, self.numel / width, std::max<int64_t>(1, 16384 / width),
             [&](int64_t begin, int64_t end) {
               for (int64_t row = begin; row < end; ++row) {
                 C* values = result.data() + row * width;
                 std::copy_n(in.data() + row * width, width, values);
                 for (int64_t i = 0; i < width; i += power) sylvester(values + i, power);
                 if (special) williamson(values, power);
               }
             });
  result.finish();
}

}  // namespace

Status fast_hadamard(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 1);
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  const DType dtype = self.dtype;
  if (dtype != DType::kF32 && dtype != DType::kF64 && dtype != DType::kF16) {
    return bad_input(fmt::format("{} must be f32, f64 or f16", describe(self)));
  }
  if (self.rank() == 0) return bad_input(fmt::format("{} has no dimensions", describe(self)));
  FERRY_RETURN_IF_ERROR(resize(out, self.sizes));
  if (out.numel == 0) return {};
  const int64_t width = self.sizes.back();
  const int64_t power = width % kOrder == 0 ? width / kOrder : width;
  if (!std::has_single_bit(static_cast<uint64_t>(power))) {
    return bad_input(fmt::format("{}: rows must have 2^n or 28 * 2^n values", describe(self)));
  }
  if (dtype == DType::kF64) {
    transform_rows<double>(call, self, width, out);
  } else {
    transform_rows<float>(call, self, width, out);
  }
  return {};
}

}  // namespace ferry::kernels
