// Operators that read or write at the positions in index tensors. Every position is checked.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/dtypes.h"
#include "kernels/kernel.h"
#include "kernels/kernels.h"
#include "kernels/strided_copy.h"

namespace ferry::kernels {
namespace {

Status require_index_dtype(const Tensor& indices) {
  if (indices.dtype == DType::kI64 || indices.dtype == DType::kI32) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{} must be i64 or i32 to be an index", describe(indices)));
}

// Returns a position in a dimension of `size`. Negative positions count from the end if `wrap`.
Result<int64_t> position(const Tensor& indices, int64_t i, int64_t size, bool wrap) {
  const int64_t at = index_at(indices, i);
  if (at >= size || at < (wrap ? -size : 0)) {
    return bad_input(
        fmt::format("index {} in value {} is outside of a dimension of {}", at, indices.id, size));
  }
  return at < 0 ? at + size : at;
}

// self[indices], where some dimensions of `self` are indexed: the shape of the result, and for each
// position of the broadcast index tensors the offsets in `self` and in the result.
struct Indexed {
  Dims result;                    // shape of self[indices]
  Dims block;                     // sizes of the dimensions that are not indexed
  Dims block_self, block_result;  // their strides in `self` and in the result
  std::vector<int64_t> self_offsets, result_offsets;  // in elements, by position
};

struct IndexArguments {
  std::vector<const Tensor*> indices;  // one per leading dimension of self; null if not indexed
  Dims positions;                      // broadcast shape
  int first = 0;                       // the first of the dimensions `positions` in the result
};

Result<IndexArguments> index_arguments(const Tensor& self, std::span<Value* const> items) {
  IndexArguments out;
  if (items.size() > static_cast<size_t>(self.rank())) {
    return bad_input(fmt::format("{} indices for {}", items.size(), describe(self)));
  }
  int runs = 0;
  for (size_t dim = 0; dim < items.size(); ++dim) {
    const Tensor* tensor = items[dim] == nullptr || items[dim]->kind == Value::Kind::kNone
                               ? nullptr
                               : items[dim]->tensor;
    out.indices.push_back(tensor);
    if (tensor == nullptr) continue;
    FERRY_RETURN_IF_ERROR(require_index_dtype(*tensor));
    out.positions = FERRY_TRY(broadcast(out.positions, tensor->sizes));
    if (dim == 0 || out.indices[dim - 1] == nullptr) {
      ++runs;
      if (runs == 1) out.first = static_cast<int>(dim);
    }
  }
  if (runs == 0) return bad_input("no dimension is indexed");
  if (runs > 1) out.first = 0;  // torch's rule for indices that are not adjacent
  return out;
}

Result<Indexed> resolve(const Tensor& self, std::span<Value* const> items) {
  const IndexArguments arguments = FERRY_TRY(index_arguments(self, items));
  const Dims own = contiguous_strides(self.sizes);
  Indexed out;
  int indexed = 0;
  for (const Tensor* t : arguments.indices) indexed += t != nullptr ? 1 : 0;
  if (self.rank() - indexed + arguments.positions.rank() > kMaxRank) {
    return bad_input("the result has too many dimensions");
  }
  const auto indexed_by = [&](int dim) {
    return dim < static_cast<int>(arguments.indices.size())
               ? arguments.indices[static_cast<size_t>(dim)]
               : nullptr;
  };
  for (int dim = 0; dim < self.rank(); ++dim) {
    if (indexed_by(dim) != nullptr) continue;
    out.block.push_back(self.size(dim));
    out.block_self.push_back(own[dim]);
  }
  // The result has the block dimensions before `first`, the positions, then the other block
  // dimensions.
  const int positions_rank = arguments.positions.rank();
  for (int dim = 0; dim < arguments.first; ++dim) out.result.push_back(out.block[dim]);
  for (int64_t size : arguments.positions) out.result.push_back(size);
  for (int dim = arguments.first; dim < out.block.rank(); ++dim) {
    out.result.push_back(out.block[dim]);
  }
  if (!checked_numel(out.result.span())) return bad_input("the result is too large");
  const Dims strides = contiguous_strides(out.result);
  for (int dim = 0; dim < out.block.rank(); ++dim) {
    out.block_result.push_back(strides[dim < arguments.first ? dim : dim + positions_rank]);
  }
  const int64_t count = numel(arguments.positions.span());
  out.self_offsets.assign(static_cast<size_t>(count), 0);
  out.result_offsets.assign(static_cast<size_t>(count), 0);
  Dims at = Dims::filled(positions_rank, 0);
  for (int64_t i = 0; i < count; ++i) {
    int64_t& self_offset = out.self_offsets[static_cast<size_t>(i)];
    for (int dim = 0; dim < self.rank(); ++dim) {
      const Tensor* t = indexed_by(dim);
      if (t == nullptr) continue;
      const Dims step = expanded_strides(t->sizes, arguments.positions);
      int64_t element = 0;
      for (int d = 0; d < positions_rank; ++d) element += at[d] * step[d];
      self_offset += FERRY_TRY(position(*t, element, self.size(dim), true)) * own[dim];
    }
    for (int d = 0; d < positions_rank; ++d) {
      out.result_offsets[static_cast<size_t>(i)] += at[d] * strides[arguments.first + d];
    }
    for (int d = positions_rank - 1; d >= 0 && ++at[d] == arguments.positions[d]; --d) at[d] = 0;
  }
  return out;
}

// Index tensors may repeat a few elements over a huge broadcast shape, so the size of the result is
// checked first.
Status check_result(const Tensor& like, const Dims& sizes) {
  const std::optional<int64_t> count = checked_numel(sizes.span());
  if (count && *count <= static_cast<int64_t>(like.capacity)) return {};
  return bad_input(fmt::format("the indexed values do not fit {}", describe(like)));
}

// Computes out[at] += value.
void add_to(Tensor& out, int64_t at, const Tensor& values, int64_t from) {
  std::byte* to = out.data + at * out.element_bytes();
  const Number a = load_number(out.dtype, to);
  const Number b = load_number(values.dtype, values.data + from * values.element_bytes());
  if (is_floating(out.dtype))
    return store_number(out.dtype, Number::of_double(a.real + b.real), to);
  const uint64_t sum = static_cast<uint64_t>(a.integer) + static_cast<uint64_t>(b.integer);
  store_number(out.dtype, Number::of_int(static_cast<int64_t>(sum)), to);  // integers wrap
}

// Adds a block of values, from element `from` on with its strides, to a block of `out`.
void add_block(const Dims& block, const Tensor& values, int64_t from, const Dims& from_strides,
               Tensor& out, int64_t to, const Dims& to_strides) {
  Dims at = Dims::filled(block.rank(), 0);
  for (int64_t i = 0, count = numel(block.span()); i < count; ++i) {
    int64_t a = to, b = from;
    for (int d = 0; d < block.rank(); ++d) {
      a += at[d] * to_strides[d];
      b += at[d] * from_strides[d];
    }
    add_to(out, a, values, b);
    for (int d = block.rank() - 1; d >= 0 && ++at[d] == block[d]; --d) at[d] = 0;
  }
}

Status put_values(const Call& call, const Tensor& self, std::span<Value* const> items,
                  const Tensor& values, bool accumulate, Tensor& out) {
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, values));
  const IndexArguments arguments = FERRY_TRY(index_arguments(self, items));
  FERRY_RETURN_IF_ERROR(check_result(values, values.numel == 1 ? Dims{} : arguments.positions));
  FERRY_RETURN_IF_ERROR(check_result(self, arguments.positions));
  const Indexed where = FERRY_TRY(resolve(self, items));
  const Dims wide = FERRY_TRY(broadcast(values.sizes, where.result));
  if (!(wide == where.result)) return require_sizes(values, where.result);
  // The strides of `values` in the result's dimensions convert positions back to offsets.
  const Dims steps = expanded_strides(values.sizes, where.result);
  const Dims strides = contiguous_strides(where.result);
  const auto value_offset = [&](int64_t result_offset) {
    int64_t offset = 0;
    for (int d = 0; d < strides.rank(); ++d) {
      offset += result_offset / strides[d] * steps[d];
      result_offset %= strides[d];
    }
    return offset;
  };
  Dims block_values;
  for (int d = 0, dim = 0; d < where.block.rank(); ++d, ++dim) {
    if (dim == arguments.first) dim += arguments.positions.rank();
    block_values.push_back(steps[dim]);
  }
  if (numel(where.result.span()) == 0) return {};
  if (accumulate) {
    for (size_t i = 0; i < where.self_offsets.size(); ++i) {
      add_block(where.block, values, value_offset(where.result_offsets[i]), block_values, out,
                where.self_offsets[i], where.block_self);
    }
    return {};
  }
  for (size_t i = 0; i < where.self_offsets.size(); ++i) {
    strided_copy(call.pool, where.block, out.element_bytes(),
                 strided(values, value_offset(where.result_offsets[i]), block_values),
                 strided(out, where.self_offsets[i], where.block_self));
  }
  return {};
}

// Checks the shapes of gather and scatter: `index` fits inside `self` except along `dim`.
Status check_gather(const Tensor& self, int dim, const Tensor& index, const Tensor& other) {
  FERRY_RETURN_IF_ERROR(require_index_dtype(index));
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, other));
  FERRY_RETURN_IF_ERROR(require_rank(index, self.rank()));
  for (int d = 0; d < self.rank(); ++d) {
    if (d != dim && index.size(d) > self.size(d)) return require_sizes(index, self.sizes);
  }
  return {};
}

// Returns the mask of every element of a tensor of `sizes`.
std::vector<bool> expanded_mask(const Tensor& mask, const Dims& sizes) {
  const Dims steps = expanded_strides(mask.sizes, sizes);
  std::vector<bool> chosen(static_cast<size_t>(numel(sizes.span())));
  Dims at = Dims::filled(sizes.rank(), 0);
  for (size_t i = 0; i < chosen.size(); ++i) {
    int64_t from = 0;
    for (int d = 0; d < sizes.rank(); ++d) from += at[d] * steps[d];
    chosen[i] = mask.data[from] != std::byte{0};
    for (int d = sizes.rank() - 1; d >= 0 && ++at[d] == sizes[d]; --d) at[d] = 0;
  }
  return chosen;
}

// Calls f(element of index, offset in `self` with `dim` at the indexed position).
template <class F>
Status for_gathered(const Tensor& self, int dim, const Tensor& index, const F& f) {
  const Dims strides = contiguous_strides(self.sizes);
  Dims at = Dims::filled(index.rank(), 0);
  for (int64_t i = 0; i < index.numel; ++i) {
    int64_t offset = 0;
    for (int d = 0; d < index.rank(); ++d) {
      const int64_t p = d == dim ? FERRY_TRY(position(index, i, self.size(d), false)) : at[d];
      offset += p * strides[d];
    }
    f(at, i, offset);
    for (int d = index.rank() - 1; d >= 0 && ++at[d] == index.size(d); --d) at[d] = 0;
  }
  return {};
}

}  // namespace

Status embedding(const Call& call) {
  const Tensor& weight = tensor(call, 0);
  const Tensor& indices = tensor(call, 1);
  Tensor& out = tensor(call, 5);
  FERRY_RETURN_IF_ERROR(require_rank(weight, 2));
  FERRY_RETURN_IF_ERROR(require_index_dtype(indices));
  const bool widened = out.widened && weight.dtype != out.dtype && is_floating(weight.dtype);
  if (!widened) FERRY_RETURN_IF_ERROR(require_same_dtype(weight, out));
  if (indices.rank() == kMaxRank) return bad_input("the result has too many dimensions");
  Dims sizes = indices.sizes;
  sizes.push_back(weight.size(1));
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  const int64_t row = weight.size(1) * weight.element_bytes();
  for (int64_t i = 0; i < indices.numel; ++i) {
    const int64_t at = FERRY_TRY(position(indices, i, weight.size(0), false));
    if (widened && out.dtype == DType::kF64) {
      load(weight.dtype, weight.data + at * row, out.as<double>() + i * weight.size(1),
           weight.size(1));
    } else if (widened) {
      load(weight.dtype, weight.data + at * row, out.as<float>() + i * weight.size(1),
           weight.size(1));
    } else if (row > 0) {
      std::memcpy(out.data + i * row, weight.data + at * row, static_cast<size_t>(row));
    }
  }
  return {};
}

Status index(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 2);
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  FERRY_RETURN_IF_ERROR(
      check_result(out, FERRY_TRY(index_arguments(self, list(call, 1))).positions));
  const Indexed where = FERRY_TRY(resolve(self, list(call, 1)));
  FERRY_RETURN_IF_ERROR(resize(out, where.result));
  if (out.numel == 0) return {};
  for (size_t i = 0; i < where.self_offsets.size(); ++i) {
    strided_copy(call.pool, where.block, out.element_bytes(),
                 strided(self, where.self_offsets[i], where.block_self),
                 strided(out, where.result_offsets[i], where.block_result));
  }
  return {};
}

Status index_put(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 4);
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  FERRY_RETURN_IF_ERROR(resize(out, self.sizes));
  copy_bytes(self, out);
  return put_values(call, self, list(call, 1), tensor(call, 2), boolean(call, 3), out);
}

Status index_put_inplace(const Call& call) {
  Tensor& self = tensor(call, 0);
  return put_values(call, self, list(call, 1), tensor(call, 2), boolean(call, 3), self);
}

Status index_select(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const Tensor& indices = tensor(call, 2);
  Tensor& out = tensor(call, 3);
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  FERRY_RETURN_IF_ERROR(require_index_dtype(indices));
  if (self.rank() == 0 || indices.rank() > 1) {
    return bad_input(fmt::format("{} cannot be indexed by {}", describe(self), describe(indices)));
  }
  const int dim = FERRY_TRY(wrap_dim(integer(call, 1), self.rank()));
  Dims sizes = self.sizes;
  sizes[dim] = indices.numel;
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  const Dims from = contiguous_strides(self.sizes);
  const Dims to = contiguous_strides(sizes);
  sizes[dim] = 1;
  for (int64_t i = 0; i < indices.numel; ++i) {
    const int64_t at = FERRY_TRY(position(indices, i, self.size(dim), false));
    strided_copy(call.pool, sizes, out.element_bytes(), strided(self, at * from[dim], from),
                 strided(out, i * to[dim], to));
  }
  return {};
}

Status nonzero(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 1);
  FERRY_RETURN_IF_ERROR(require_dtype(out, DType::kI64));
  std::vector<int64_t> found;  // positions in row-major order
  for (int64_t i = 0; i < self.numel; ++i) {
    const Number value = load_number(self.dtype, self.data + i * self.element_bytes());
    if (value.real != 0) found.push_back(i);  // NaN counts as nonzero
  }
  FERRY_RETURN_IF_ERROR(resize(out, {std::ssize(found), self.rank()}));
  const Dims strides = contiguous_strides(self.sizes);
  int64_t* to = out.as<int64_t>();
  for (int64_t place : found) {
    for (int d = 0; d < self.rank(); ++d) {
      *to++ = place / strides[d];
      place %= strides[d];
    }
  }
  return {};
}

Status gather(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const Tensor& index = tensor(call, 2);
  Tensor& out = tensor(call, 4);
  const int dim = FERRY_TRY(wrap_dim(integer(call, 1), self.rank()));
  FERRY_RETURN_IF_ERROR(check_gather(self, dim, index, out));
  FERRY_RETURN_IF_ERROR(resize(out, index.sizes));
  const int64_t bytes = out.element_bytes();
  return for_gathered(self, dim, index, [&](const Dims&, int64_t i, int64_t offset) {
    std::memcpy(out.data + i * bytes, self.data + offset * bytes, static_cast<size_t>(bytes));
  });
}

namespace {

// Scatters to a copy of `self` in `out`: write(offset in src, offset in out) for every index.
template <class F>
Status scatter_to(const Call& call, const Tensor& src, Tensor& out, const F& write) {
  const Tensor& self = tensor(call, 0);
  const Tensor& index = tensor(call, 2);
  const int dim = FERRY_TRY(wrap_dim(integer(call, 1), self.rank()));
  FERRY_RETURN_IF_ERROR(check_gather(self, dim, index, src));
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  FERRY_RETURN_IF_ERROR(require_rank(src, index.rank()));
  for (int d = 0; d < index.rank(); ++d) {
    if (index.size(d) > src.size(d)) return require_sizes(src, index.sizes);
  }
  FERRY_RETURN_IF_ERROR(resize(out, self.sizes));
  copy_bytes(self, out);
  const Dims strides = contiguous_strides(src.sizes);
  return for_gathered(self, dim, index, [&](const Dims& at, int64_t, int64_t offset) {
    int64_t from = 0;
    for (int d = 0; d < at.rank(); ++d) from += at[d] * strides[d];
    write(from, offset);
  });
}

}  // namespace

Status scatter_src(const Call& call) {
  const Tensor& src = tensor(call, 3);
  Tensor& out = tensor(call, 4);
  const int64_t bytes = out.element_bytes();
  return scatter_to(call, src, out, [&](int64_t from, int64_t to) {
    std::memcpy(out.data + to * bytes, src.data + from * bytes, static_cast<size_t>(bytes));
  });
}

Status scatter_add(const Call& call) {
  const Tensor& src = tensor(call, 3);
  Tensor& out = tensor(call, 4);
  return scatter_to(call, src, out, [&](int64_t from, int64_t to) { add_to(out, to, src, from); });
}

Status scatter_value(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const Number value = number(call, 3);
  Tensor& out = tensor(call, 4);
  // Every element of the index takes the value, so `self` stands for a source.
  const int dim = FERRY_TRY(wrap_dim(integer(call, 1), self.rank()));
  FERRY_RETURN_IF_ERROR(check_gather(self, dim, tensor(call, 2), self));
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  FERRY_RETURN_IF_ERROR(resize(out, self.sizes));
  copy_bytes(self, out);
  return for_gathered(self, dim, tensor(call, 2), [&](const Dims&, int64_t, int64_t offset) {
    store_number(out.dtype, value, out.data + offset * out.element_bytes());
  });
}

// The mask has the shape of `self`, or one that broadcasts to it.
Status masked_scatter(const Call& call) {
  const Tensor &self = tensor(call, 0), &mask = tensor(call, 1), &source = tensor(call, 2);
  Tensor& out = tensor(call, 3);
  FERRY_RETURN_IF_ERROR(require_dtype(mask, DType::kBool));
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, source));
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  const Dims sizes = FERRY_TRY(broadcast(self.sizes, mask.sizes));
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  copy_expanded(call.pool, self, out);
  const std::vector<bool> chosen = expanded_mask(mask, sizes);
  const int64_t bytes = out.element_bytes();
  for (int64_t i = 0, from = 0; i < out.numel; ++i) {
    if (!chosen[static_cast<size_t>(i)]) continue;
    if (from == source.numel) {
      return bad_input(fmt::format("{} has too few values for the mask", describe(source)));
    }
    std::memcpy(out.data + i * bytes, source.data + from++ * bytes, static_cast<size_t>(bytes));
  }
  return {};
}

Status masked_select(const Call& call) {
  const Tensor &self = tensor(call, 0), &mask = tensor(call, 1);
  Tensor& out = tensor(call, 2);
  FERRY_RETURN_IF_ERROR(require_dtype(mask, DType::kBool));
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  const Dims sizes = FERRY_TRY(broadcast(self.sizes, mask.sizes));
  FERRY_RETURN_IF_ERROR(check_result(out, sizes));
  const std::vector<bool> chosen = expanded_mask(mask, sizes);
  FERRY_RETURN_IF_ERROR(resize(out, {std::ranges::count(chosen, true)}));
  const Dims steps = expanded_strides(self.sizes, sizes);
  const int64_t bytes = out.element_bytes();
  std::byte* to = out.data;
  Dims at = Dims::filled(sizes.rank(), 0);
  for (const bool is_chosen : chosen) {
    int64_t from = 0;
    for (int d = 0; d < sizes.rank(); ++d) from += at[d] * steps[d];
    if (is_chosen) {
      std::memcpy(to, self.data + from * bytes, static_cast<size_t>(bytes));
      to += bytes;
    }
    for (int d = sizes.rank() - 1; d >= 0 && ++at[d] == sizes[d]; --d) at[d] = 0;
  }
  return {};
}

}  // namespace ferry::kernels
