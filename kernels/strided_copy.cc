#include "kernels/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "kernels/kernel.h"

namespace ferry::kernels {
namespace {

constexpr int64_t kPieceBytes = int64_t{256} * 1024;
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

// Copies tile by tile, so that a transposition reads every line of memory once, not once for each
// element.
template <class T>
void copy_tiles(const std::byte* from, std::byte* to, int64_t rows, const RowStrides& s) {
  const T* source = reinterpret_cast<const T*>(from);
  T* target = reinterpret_cast<T*>(to);
  for (int64_t begin = 0; begin < s.n; begin += kTile) {
    const int64_t end = std::min(begin + kTile, s.n);
    for (int64_t row = 0; row < rows; ++row) {
      const T* in = source + row * s.from_row;
      T* out = target + row * s.to_row;
      for (int64_t i = begin; i < end; ++i) out[i * s.to] = in[i * s.from];
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
