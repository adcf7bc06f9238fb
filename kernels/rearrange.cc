// Operators that move elements: permutations, slices, joins and splits.
#include <algorithm>
#include <cstring>

#include "kernels/dtypes.h"
#include "kernels/kernel.h"
#include "kernels/kernels.h"
#include "kernels/strided_copy.h"
#include "kernels/typed_values.h"

namespace ferry::kernels {
namespace {

Status permute_as(const Call& call, const Tensor& self, const Dims& order, Tensor& out) {
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  const Dims own = contiguous_strides(self.sizes);
  Dims sizes, strides;
  for (int64_t dim : order) {
    sizes.push_back(self.size(static_cast<int>(dim)));
    strides.push_back(own[static_cast<int>(dim)]);
  }
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  strided_copy(call.pool, sizes, out.element_bytes(), strided(self, 0, strides), strided(out));
  return {};
}

Dims identity(int rank) {
  Dims order;
  for (int dim = 0; dim < rank; ++dim) order.push_back(dim);
  return order;
}

Status no_scalar(const Tensor& self) {
  if (self.rank() > 0) return {};
  return bad_input(fmt::format("{} has no dimensions", describe(self)));
}

// A range along dimension `dim` of a tensor of shape `sizes`: its shape and its memory layout.
struct Part {
  Dims sizes, strides;
  int64_t skip = 0;
};
Part part_of(const Dims& sizes, int dim, const Range& range) {
  Part part{sizes, contiguous_strides(sizes), 0};
  part.skip = range.count == 0 ? 0 : range.start * part.strides[dim];
  part.sizes[dim] = range.count;
  // A step beyond the end is taken at most once.
  part.strides[dim] = range.count <= 1 ? part.strides[dim] : part.strides[dim] * range.step;
  return part;
}

// Copies part of `self` to `out`, which gets the part's shape, without dimension `drop` if drop >=
// 0.
Status take(const Call& call, const Tensor& self, const Part& part, int drop, Tensor& out) {
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  Dims sizes = part.sizes;
  Dims strides = part.strides;
  if (drop >= 0) {
    sizes.erase(drop);
    strides.erase(drop);
  }
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  strided_copy(call.pool, sizes, out.element_bytes(), strided(self, part.skip, strides),
               strided(out));
  return {};
}

// Returns the values of `from` as elements of another dtype, rounded once.
std::vector<std::byte> converted(const Tensor& from, DType dtype) {
  std::vector<std::byte> bytes(static_cast<size_t>(from.numel * dtype_bytes(dtype)));
  Compute compute = compute_type(from.dtype);
  if (compute == Compute::kF32 && dtype == DType::kF64) compute = Compute::kF64;
  dispatch(compute, [&](auto tag) {
    const InputValues<typename decltype(tag)::type> values(from);
    store(dtype, values.data(), bytes.data(), from.numel);
  });
  return bytes;
}

// Copies `self` to `out`, then `src`, converted as by a copy, over the part. `src` has the part's
// shape, without `drop`.
Status put(const Call& call, const Tensor& self, const Tensor& src, Part part, int drop,
           Tensor& out) {
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  const bool converts = is_computable(src.dtype) && is_computable(out.dtype);
  if (!converts) FERRY_RETURN_IF_ERROR(require_same_dtype(self, src));
  if (drop >= 0) {
    part.sizes.erase(drop);
    part.strides.erase(drop);
  }
  FERRY_RETURN_IF_ERROR(require_sizes(src, part.sizes));
  FERRY_RETURN_IF_ERROR(resize(out, self.sizes));
  copy_bytes(self, out);
  std::vector<std::byte> copy;
  if (src.dtype != out.dtype) copy = converted(src, out.dtype);
  strided_copy(call.pool, part.sizes, out.element_bytes(),
               {copy.empty() ? src.data : copy.data(), contiguous_strides(src.sizes)},
               strided(out, part.skip, part.strides));
  return {};
}

Result<int64_t> wrap_index(int64_t index, int64_t size) {
  if (index < -size || index >= size) {
    return bad_input(fmt::format("index {} is outside of a dimension of {}", index, size));
  }
  return index < 0 ? index + size : index;
}

// Copies consecutive parts of `self` along `dim`, one for each out. Part i has size_of(i) elements
// there.
template <class SizeOf>
Status split_into(const Call& call, const Tensor& self, int dim, size_t parts,
                  const SizeOf& size_of, std::span<Value* const> outs, bool drop) {
  if (outs.size() != parts) {
    return bad_input(fmt::format("{} parts, but {} outputs", parts, outs.size()));
  }
  int64_t start = 0;
  for (size_t i = 0; i < parts; ++i) {
    const int64_t size = size_of(i);
    if (size < 0 || size > self.size(dim) - start) {
      return bad_input(fmt::format("the parts do not add up to {}", describe(self)));
    }
    FERRY_RETURN_IF_ERROR(take(call, self, part_of(self.sizes, dim, {start, size, 1}),
                               drop ? dim : -1, *outs[i]->tensor));
    start += size;
  }
  if (start == self.size(dim)) return {};
  return bad_input(fmt::format("the parts do not add up to {}", describe(self)));
}

Status require_castable(const Tensor& part, const Tensor& out) {
  const bool numbers = is_computable(part.dtype) && is_computable(out.dtype);
  return numbers && can_cast(part.dtype, out.dtype) ? Status() : require_same_dtype(part, out);
}

// Copies tensors, in the dtype of `out`, one after the other along its dimension `dim`. `out` has
// shape `sizes`; extent_of(tensor) is the size of a part in that dimension. Parts without elements
// are ignored. The first `left_out` parts have their place, but are not copied.
template <class ExtentOf>
Status join(const Call& call, std::span<Value* const> parts, const Dims& sizes, int dim,
            const ExtentOf& extent_of, Tensor& out, int left_out = 0) {
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  const Dims strides = contiguous_strides(sizes);
  int64_t start = 0;
  for (const Value* item : parts) {
    if (item->tensor->numel == 0) continue;
    Dims part = sizes;
    part[dim] = extent_of(*item->tensor);
    if (left_out-- <= 0) {
      std::vector<std::byte> copy;
      if (item->tensor->dtype != out.dtype) copy = converted(*item->tensor, out.dtype);
      strided_copy(call.pool, part, out.element_bytes(),
                   {copy.empty() ? item->tensor->data : copy.data(), contiguous_strides(part)},
                   strided(out, start * strides[dim], strides));
    }
    start += part[dim];
  }
  return {};
}

// torch skips empty tensors of one dimension, whatever the shape of the others.
bool is_skipped(const Tensor& part) { return part.rank() == 1 && part.numel == 0; }

}  // namespace

Status permute(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Dims order = FERRY_TRY(int_list(call, 1));
  uint32_t seen = 0;
  for (int i = 0; i < order.rank(); ++i) {
    order[i] = FERRY_TRY(wrap_dim(order[i], self.rank()));
    seen |= 1U << order[i];
  }
  if (order.rank() != self.rank() || seen != (1U << self.rank()) - 1) {
    return bad_input(fmt::format("not a permutation of the dimensions of {}", describe(self)));
  }
  return permute_as(call, self, order, tensor(call, 2));
}

Status transpose(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Dims order = identity(self.rank());
  const int a = FERRY_TRY(wrap_dim(integer(call, 1), self.rank()));
  const int b = FERRY_TRY(wrap_dim(integer(call, 2), self.rank()));
  if (self.rank() > 0) std::swap(order[a], order[b]);
  return permute_as(call, self, order, tensor(call, 3));
}

Status t_copy(const Call& call) {
  const Tensor& self = tensor(call, 0);
  if (self.rank() > 2) return bad_input(fmt::format("{} is not a matrix", describe(self)));
  return permute_as(call, self, self.rank() == 2 ? Dims{1, 0} : identity(self.rank()),
                    tensor(call, 1));
}

Status expand(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 3);
  Dims sizes = FERRY_TRY(int_list(call, 1));
  const int shift = sizes.rank() - self.rank();
  for (int dim = 0; dim < sizes.rank(); ++dim) {
    if (sizes[dim] == -1 && dim >= shift && shift >= 0) sizes[dim] = self.size(dim - shift);
    if (sizes[dim] < 0) return bad_input(fmt::format("cannot expand to size {}", sizes[dim]));
  }
  const Dims wide = FERRY_TRY(broadcast(self.sizes, sizes));
  if (shift < 0 || !(wide == sizes)) {
    return bad_input(fmt::format("{} cannot be expanded to the requested shape", describe(self)));
  }
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  copy_expanded(call.pool, self, out);
  return {};
}

Status repeat(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 2);
  const Dims repeats = FERRY_TRY(int_list(call, 1));
  const int shift = repeats.rank() - self.rank();
  if (shift < 0) return bad_input("fewer repeats than dimensions");
  if (repeats.rank() * 2 > kMaxRank) return bad_input("too many dimensions to repeat");
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  // The dimensions are viewed as [r0, s0, r1, s1, ...], where the r have stride 0.
  const Dims own = contiguous_strides(self.sizes);
  Dims sizes, wide, strides;
  for (int dim = 0; dim < repeats.rank(); ++dim) {
    const int64_t size = dim < shift ? 1 : self.size(dim - shift);
    const std::optional<int64_t> product = checked_mul(size, repeats[dim]);
    if (repeats[dim] < 0 || !product) return bad_input("repeats are out of range");
    sizes.push_back(*product);
    wide.push_back(repeats[dim]);
    strides.push_back(0);
    wide.push_back(size);
    strides.push_back(dim < shift ? 0 : own[dim - shift]);
  }
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  strided_copy(call.pool, wide, out.element_bytes(), strided(self, 0, strides),
               {out.data, contiguous_strides(wide)});
  return {};
}

Status slice(const Call& call) {
  const Tensor& self = tensor(call, 0);
  FERRY_RETURN_IF_ERROR(no_scalar(self));
  const int dim = FERRY_TRY(wrap_dim(integer(call, 1), self.rank()));
  const Range range = FERRY_TRY(
      slice_range(self.size(dim), optional_int(call, 2), optional_int(call, 3), integer(call, 4)));
  return take(call, self, part_of(self.sizes, dim, range), -1, tensor(call, 5));
}

Status narrow_copy(const Call& call) {
  const Tensor& self = tensor(call, 0);
  FERRY_RETURN_IF_ERROR(no_scalar(self));
  const int dim = FERRY_TRY(wrap_dim(integer(call, 1), self.rank()));
  const int64_t size = self.size(dim);
  int64_t start = integer(call, 2);
  const int64_t length = integer(call, 3);
  if (start < 0) start += size;
  if (start < 0 || start > size || length < 0 || length > size - start) {
    return bad_input(fmt::format("narrow beyond the end of {}", describe(self)));
  }
  return take(call, self, part_of(self.sizes, dim, {start, length, 1}), -1, tensor(call, 4));
}

Status select_index(const Call& call) {
  const Tensor& self = tensor(call, 0);
  FERRY_RETURN_IF_ERROR(no_scalar(self));
  const int dim = FERRY_TRY(wrap_dim(integer(call, 1), self.rank()));
  const int64_t at = FERRY_TRY(wrap_index(integer(call, 2), self.size(dim)));
  return take(call, self, part_of(self.sizes, dim, {at, 1, 1}), dim, tensor(call, 3));
}

Status slice_scatter(const Call& call) {
  const Tensor& self = tensor(call, 0);
  FERRY_RETURN_IF_ERROR(no_scalar(self));
  const int dim = FERRY_TRY(wrap_dim(integer(call, 2), self.rank()));
  const Range range = FERRY_TRY(
      slice_range(self.size(dim), optional_int(call, 3), optional_int(call, 4), integer(call, 5)));
  return put(call, self, tensor(call, 1), part_of(self.sizes, dim, range), -1, tensor(call, 6));
}

Status select_scatter(const Call& call) {
  const Tensor& self = tensor(call, 0);
  FERRY_RETURN_IF_ERROR(no_scalar(self));
  const int dim = FERRY_TRY(wrap_dim(integer(call, 2), self.rank()));
  const int64_t at = FERRY_TRY(wrap_index(integer(call, 3), self.size(dim)));
  return put(call, self, tensor(call, 1), part_of(self.sizes, dim, {at, 1, 1}), dim,
             tensor(call, 4));
}

Status cat(const Call& call) {
  Tensor& out = tensor(call, 2);
  const std::span<Value* const> items = list(call, 0);
  const auto first =
      std::ranges::find_if(items, [](const Value* item) { return !is_skipped(*item->tensor); });
  if (first == items.end()) return resize(out, {0});
  FERRY_RETURN_IF_ERROR(no_scalar(*(*first)->tensor));
  Dims sizes = (*first)->tensor->sizes;
  const int dim = FERRY_TRY(wrap_dim(integer(call, 1), sizes.rank()));
  int64_t total = 0;
  for (const Value* item : items) {
    const Tensor& part = *item->tensor;
    if (is_skipped(part)) continue;
    FERRY_RETURN_IF_ERROR(require_castable(part, out));
    FERRY_RETURN_IF_ERROR(require_rank(part, sizes.rank()));
    const std::optional<int64_t> sum = checked_add(total, part.size(dim));
    if (!sum) return bad_input("the joined size overflows");
    total = *sum;
    sizes[dim] = part.size(dim);
    FERRY_RETURN_IF_ERROR(require_sizes(part, sizes));
  }
  sizes[dim] = total;
  return join(
      call, items, sizes, dim, [&](const Tensor& part) { return part.size(dim); }, out,
      call.variant);
}

Status stack(const Call& call) {
  Tensor& out = tensor(call, 2);
  const std::span<Value* const> items = list(call, 0);
  if (items.empty()) return bad_input("nothing to stack");
  const Tensor& first = *items[0]->tensor;
  for (const Value* item : items) {
    FERRY_RETURN_IF_ERROR(require_castable(*item->tensor, out));
    FERRY_RETURN_IF_ERROR(require_sizes(*item->tensor, first.sizes));
  }
  if (first.rank() == kMaxRank) return bad_input("the result has too many dimensions");
  const int dim = FERRY_TRY(wrap_dim(integer(call, 1), first.rank() + 1));
  Dims sizes = first.sizes;
  sizes.insert(dim, static_cast<int64_t>(items.size()));
  return join(
      call, items, sizes, dim, [](const Tensor&) { return int64_t{1}; }, out);
}

Status split_with_sizes(const Call& call) {
  const Tensor& self = tensor(call, 0);
  FERRY_RETURN_IF_ERROR(no_scalar(self));
  const int dim = FERRY_TRY(wrap_dim(integer(call, 2), self.rank()));
  const std::span<Value* const> sizes = list(call, 1);
  return split_into(
      call, self, dim, sizes.size(), [&](size_t i) { return sizes[i]->integer; }, list(call, 3),
      false);
}

Status split_size(const Call& call) {
  const Tensor& self = tensor(call, 0);
  FERRY_RETURN_IF_ERROR(no_scalar(self));
  const int dim = FERRY_TRY(wrap_dim(integer(call, 2), self.rank()));
  const int64_t size = integer(call, 1);
  if (size < 1) return bad_input(fmt::format("cannot split into parts of {}", size));
  const std::span<Value* const> outs = list(call, 3);
  const int64_t whole = self.size(dim);
  const int64_t parts = whole == 0 ? 1 : (whole - 1) / size + 1;
  return split_into(
      call, self, dim, static_cast<size_t>(parts),
      [&](size_t i) { return std::min(size, whole - static_cast<int64_t>(i) * size); }, outs,
      false);
}

// A loop writes one row after the other; rows of a dynamic shape are as many as it has written.
Status copy_to_index(const Call& call) {
  Tensor& rows = tensor(call, 0);
  const Tensor& row = tensor(call, 1);
  const int64_t index = integer(call, 2);
  FERRY_RETURN_IF_ERROR(require_same_dtype(rows, row));
  if (index < 0 || index == INT64_MAX || rows.rank() != row.rank() + 1) {
    return bad_input(
        fmt::format("{} cannot be row {} of {}", describe(row), index, describe(rows)));
  }
  Dims sizes = row.sizes;
  sizes.insert(0, rows.dynamic ? index + 1 : rows.size(0));
  FERRY_RETURN_IF_ERROR(resize(rows, sizes));
  if (index >= rows.size(0)) {
    return bad_input(fmt::format("{} has no row {}", describe(rows), index));
  }
  if (row.numel == 0) return {};
  std::memcpy(rows.data + index * row.bytes(), row.data, static_cast<size_t>(row.bytes()));
  return {};
}

Status unbind(const Call& call) {
  const Tensor& self = tensor(call, 0);
  FERRY_RETURN_IF_ERROR(no_scalar(self));
  const int dim = FERRY_TRY(wrap_dim(integer(call, 1), self.rank()));
  const std::span<Value* const> outs = list(call, 2);
  return split_into(
      call, self, dim, outs.size(), [](size_t) { return int64_t{1}; }, outs, true);
}

Status constant_pad(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 3);
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  const std::span<Value* const> pad = list(call, 1);
  if (pad.size() % 2 != 0 || pad.size() / 2 > static_cast<size_t>(self.rank())) {
    return bad_input(fmt::format("{} pad widths do not fit {}", pad.size(), describe(self)));
  }
  // Computes the kept part of `self` and its place in the result. Widths come last dimension first;
  // negative widths crop.
  Dims sizes = self.sizes;
  Dims kept = self.sizes;
  const Dims strides = contiguous_strides(self.sizes);
  int64_t from = 0;
  Dims begin = Dims::filled(self.rank(), 0);
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    const int dim = self.rank() - 1 - static_cast<int>(i);
    const int64_t before = pad[2 * i]->integer;
    const int64_t after = pad[2 * i + 1]->integer;
    constexpr int64_t kLimit = int64_t{1} << 40;
    if (std::max(std::abs(before / 2), std::abs(after / 2)) > kLimit) {
      return bad_input("a pad width is out of range");
    }
    sizes[dim] = self.size(dim) + before + after;
    kept[dim] = self.size(dim) + std::min<int64_t>(before, 0) + std::min<int64_t>(after, 0);
    if (sizes[dim] < 0 || kept[dim] < 0) {
      return bad_input(fmt::format("padding crops more than {} has", describe(self)));
    }
    from += std::max<int64_t>(-before, 0) * strides[dim];
    begin[dim] = std::max<int64_t>(before, 0);
  }
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  fill(out, number(call, 2));
  const Dims target = contiguous_strides(sizes);
  int64_t to = 0;
  for (int dim = 0; dim < self.rank(); ++dim) to += begin[dim] * target[dim];
  if (numel(kept.span()) == 0) return {};
  strided_copy(call.pool, kept, out.element_bytes(), strided(self, from, strides),
               strided(out, to, target));
  return {};
}

}  // namespace ferry::kernels
