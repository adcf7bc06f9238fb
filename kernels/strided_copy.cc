#include "kernels/strided_copy.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/kernel.h"

namespace ferry::kernels {
namespace {

constexpr int64_t kPieceBytes = int64_t{32} * 1024;
constexpr int64_t kTile = 16;  // rows and columns of a transposition that are copied together

struct CopyPlan {
  Dims outer, outer_from, outer_to;
  int64_t inner = 1, inner_from = 1, inner_to = 1;
};

// Drops dimensions of size 1 and merges neighbours that are contiguous on both sides.
CopyPlan merge(const Dims& sizes, const Dims& from, const Dims& to) {
  CopyPlan plan;
  for (int dim = 0; dim < sizes.rank(); ++dim) {
    if (sizes[dim] == 1) continue;
    const int last = plan.outer.rank() - 1;
    if (last >= 0 && plan.outer_from[last] == from[dim] * sizes[dim] &&
        plan.outer_to[last] == to[dim] * sizes[dim]) {
      plan.outer[last] *= sizes[dim];
      plan.outer_from[last] = from[dim];
      plan.outer_to[last] = to[dim];
    } else {
      plan.outer.push_back(sizes[dim]);
      plan.outer_from.push_back(from[dim]);
      plan.outer_to.push_back(to[dim]);
    }
  }
  if (plan.outer.empty()) return plan;
  plan.inner = plan.outer.back();
  plan.inner_from = plan.outer_from.back();
  plan.inner_to = plan.outer_to.back();
  plan.outer.pop_back();
  plan.outer_from.pop_back();
  plan.outer_to.pop_back();
  return plan;
}

// Strides of rows of n elements, in elements.
struct RowStrides {
  int64_t n;
  int64_t from, to;          // from one element to the next
  int64_t from_row, to_row;  // from one row to the next
};

using FourWords = uint32_t __attribute__((vector_size(16)));

// Transposes four rows of four words.
void transpose_words(const uint32_t* from, int64_t from_row, uint32_t* to, int64_t to_row) {
  FourWords rows[4];
  for (int64_t i = 0; i < 4; ++i) std::memcpy(&rows[i], from + i * from_row, sizeof rows[i]);
  const FourWords low = __builtin_shufflevector(rows[0], rows[1], 0, 4, 1, 5);
  const FourWords high = __builtin_shufflevector(rows[0], rows[1], 2, 6, 3, 7);
  const FourWords other_low = __builtin_shufflevector(rows[2], rows[3], 0, 4, 1, 5);
  const FourWords other_high = __builtin_shufflevector(rows[2], rows[3], 2, 6, 3, 7);
  const FourWords columns[] = {__builtin_shufflevector(low, other_low, 0, 1, 4, 5),
                               __builtin_shufflevector(low, other_low, 2, 3, 6, 7),
                               __builtin_shufflevector(high, other_high, 0, 1, 4, 5),
                               __builtin_shufflevector(high, other_high, 2, 3, 6, 7)};
  for (int64_t i = 0; i < 4; ++i) std::memcpy(to + i * to_row, &columns[i], sizeof columns[i]);
}

// Copies the multiples of four rows and columns of a transposition of words. Returns how many rows,
// and how many elements of each, are copied.
template <class T>
std::pair<int64_t, int64_t> copy_by_fours(const T* from, T* to, int64_t rows, int64_t n,
                                          const RowStrides& s) {
  if constexpr (sizeof(T) == 4) {
    const bool gathers = s.from_row == 1 && s.to == 1, scatters = s.from == 1 && s.to_row == 1;
    if (!gathers && !scatters) return {0, 0};
    const int64_t most_rows = rows / 4 * 4, most = n / 4 * 4;
    for (int64_t row = 0; row < most_rows; row += 4) {
      for (int64_t i = 0; i < most; i += 4) {
        transpose_words(from + row * s.from_row + i * s.from, gathers ? s.from : s.from_row,
                        to + row * s.to_row + i * s.to, gathers ? s.to_row : s.to);
      }
    }
    return {most_rows, most};
  }
  return {0, 0};
}

// Copies tile by tile, so that a transposition reads every line of memory once, not once for each
// element.
template <class T>
void copy_tiles(const std::byte* from, std::byte* to, int64_t rows, const RowStrides& s) {
  const T* source = reinterpret_cast<const T*>(from);
  T* target = reinterpret_cast<T*>(to);
  for (int64_t begin = 0; begin < s.n; begin += kTile) {
    const int64_t end = std::min(begin + kTile, s.n);
    const auto [copied_rows, copied] =
        copy_by_fours(source + begin * s.from, target + begin * s.to, rows, end - begin, s);
    for (int64_t row = 0; row < rows; ++row) {
      const T* in = source + row * s.from_row;
      T* out = target + row * s.to_row;
      const int64_t first = begin + (row < copied_rows ? copied : 0);
      for (int64_t i = first; i < end; ++i) out[i * s.to] = in[i * s.from];
    }
  }
}

using TileCopy = void (*)(const std::byte*, std::byte*, int64_t, const RowStrides&);

TileCopy tile_copy(int64_t element_bytes) {
  switch (element_bytes) {
    case 1:
      return copy_tiles<uint8_t>;
    case 2:
      return copy_tiles<uint16_t>;
    case 4:
      return copy_tiles<uint32_t>;
    default:
      return copy_tiles<uint64_t>;
  }
}

// Copies rows [begin, end) of the outer dimensions.
void copy_rows(const CopyPlan& plan, int64_t bytes, const std::byte* from, std::byte* to,
               int64_t begin, int64_t end) {
  const bool plain = plan.inner_from == 1 && plan.inner_to == 1;
  const TileCopy copy = tile_copy(bytes);
  const int last = plan.outer.rank() - 1;
  const RowStrides strides = {plan.inner, plan.inner_from, plan.inner_to,
                              last < 0 ? 0 : plan.outer_from[last],
                              last < 0 ? 0 : plan.outer_to[last]};
  Dims at = Dims::filled(plan.outer.rank(), 0);
  for (int64_t row = begin, dim = last; dim >= 0; --dim) {
    const int d = static_cast<int>(dim);
    at[d] = row % plan.outer[d];
    row /= plan.outer[d];
    from += at[d] * plan.outer_from[d] * bytes;
    to += at[d] * plan.outer_to[d] * bytes;
  }
  for (int64_t row = begin; row < end;) {
    int64_t rows = 1;  // rows of the last outer dimension, copied together
    if (plain) {
      std::memcpy(to, from, static_cast<size_t>(plan.inner * bytes));
    } else {
      if (last >= 0) rows = std::min({kTile, end - row, plan.outer[last] - at[last]});
      copy(from, to, rows, strides);
    }
    row += rows;
    for (int d = last; d >= 0; --d) {
      const int64_t step = d == last ? rows : 1;
      from += step * plan.outer_from[d] * bytes;
      to += step * plan.outer_to[d] * bytes;
      at[d] += step;
      if (at[d] < plan.outer[d]) break;
      at[d] = 0;
      from -= plan.outer[d] * plan.outer_from[d] * bytes;
      to -= plan.outer[d] * plan.outer_to[d] * bytes;
    }
  }
}

}  // namespace

void strided_copy(ThreadPool& pool, const Dims& sizes, int64_t element_bytes, const Strided& from,
                  const Strided& to) {
  if (numel(sizes.span()) == 0) return;
  const CopyPlan plan = merge(sizes, from.strides, to.strides);
  const int64_t row_bytes = plan.inner * element_bytes;
  const int64_t rows = numel(plan.outer.span());
  std::byte* target = const_cast<std::byte*>(to.data);
  for_pieces(pool, rows, std::max<int64_t>(1, kPieceBytes / row_bytes),
             [&](int64_t begin, int64_t end) {
               copy_rows(plan, element_bytes, from.data, target, begin, end);
             });
}

Strided strided(const Tensor& tensor, int64_t skip) {
  return strided(tensor, skip, contiguous_strides(tensor.sizes));
}

Strided strided(const Tensor& tensor, int64_t skip, const Dims& strides) {
  return {tensor.data + skip * tensor.element_bytes(), strides};
}

Dims expanded_strides(const Dims& tensor, const Dims& sizes) {
  const Dims own = contiguous_strides(tensor);
  Dims strides = Dims::filled(sizes.rank(), 0);
  const int shift = sizes.rank() - tensor.rank();
  for (int dim = 0; dim < tensor.rank(); ++dim) {
    strides[shift + dim] = tensor[dim] == 1 ? 0 : own[dim];
  }
  return strides;
}

void copy_expanded(ThreadPool& pool, const Tensor& from, Tensor& out) {
  if (from.numel == out.numel) return copy_bytes(from, out);
  strided_copy(pool, out.sizes, out.element_bytes(),
               strided(from, 0, expanded_strides(from.sizes, out.sizes)), strided(out));
}

void copy_bytes(const Tensor& from, Tensor& out) {
  if (from.data == out.data) return;
  std::memcpy(out.data, from.data, static_cast<size_t>(from.bytes()));
}

}  // namespace ferry::kernels
