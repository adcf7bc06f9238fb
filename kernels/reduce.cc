// Reductions over any set of dimensions.
#include <cmath>

#include "kernels/compute.h"
#include "kernels/dtypes.h"
#include "kernels/kernels.h"
#include "kernels/rows.h"

namespace ferry::kernels {
namespace {

constexpr int64_t kReducedChunk = 1024;

// Calls f(values, n) for consecutive runs of a row, as C.
template <class C, class F>
void for_chunks(DType dtype, const std::byte* row, int64_t n, const F& f) {
  if (stored_as<C>(dtype)) return f(reinterpret_cast<const C*>(row), n);
  C values[kReducedChunk];
  for (int64_t at = 0; at < n; at += kReducedChunk) {
    const int64_t count = std::min(kReducedChunk, n - at);
    load(dtype, row + at * dtype_bytes(dtype), values, count);
    f(values, count);
  }
}

Number sum_row(DType dtype, const std::byte* row, int64_t n) {
  if (!is_floating(dtype)) {
    uint64_t sum = 0;  // integers wrap
    for_chunks<int64_t>(dtype, row, n, [&](const int64_t* values, int64_t count) {
      for (int64_t i = 0; i < count; ++i) sum += static_cast<uint64_t>(values[i]);
    });
    return Number::of_int(static_cast<int64_t>(sum));
  }
  double sum = 0;
  if (dtype == DType::kF64) {
    for_chunks<double>(dtype, row, n, [&](const double* values, int64_t count) {
      for (int64_t i = 0; i < count; ++i) sum += values[i];
    });
  } else {
    for_chunks<float>(dtype, row, n, [&](const float* values, int64_t count) {
      sum += static_cast<double>(kernels::sum_f32(values, count));
    });
  }
  return Number::of_double(sum);
}

struct Extreme {
  int64_t index = 0;
  Number value = {};
};

// Finds the largest value (or smallest), the first of equals. NaN beats every value.
template <class C>
Extreme extreme_of(DType dtype, const std::byte* row, int64_t n, bool largest) {
  C best = 0;
  int64_t best_at = -1;
  int64_t at = 0;
  for_chunks<C>(dtype, row, n, [&](const C* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i, ++at) {
      const C v = values[i];
      const bool better = best == best && (v != v || (largest ? v > best : v < best));
      if (best_at >= 0 && !better) continue;
      best = v;
      best_at = at;
    }
  });
  if constexpr (std::is_integral_v<C>) return {best_at, Number::of_int(best)};
  return {best_at, Number::of_double(static_cast<double>(best))};
}

Extreme extreme(DType dtype, const std::byte* row, int64_t n, bool largest) {
  return dispatch(compute_type(dtype),
                  [&]<class C>(Tag<C>) { return extreme_of<C>(dtype, row, n, largest); });
}

bool any_of(DType dtype, const std::byte* row, int64_t n) {
  bool any = false;
  for_chunks<double>(dtype, row, n, [&](const double* values, int64_t count) {
    for (int64_t i = 0; i < count && !any; ++i) any = values[i] != 0;
  });
  return any;
}

Number product_row(DType dtype, const std::byte* row, int64_t n) {
  if (!is_floating(dtype)) {
    uint64_t product = 1;  // integers wrap
    for_chunks<int64_t>(dtype, row, n, [&](const int64_t* values, int64_t count) {
      for (int64_t i = 0; i < count; ++i) product *= static_cast<uint64_t>(values[i]);
    });
    return Number::of_int(static_cast<int64_t>(product));
  }
  double product = 1;
  for_chunks<double>(dtype, row, n, [&](const double* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) product *= values[i];
  });
  return Number::of_double(product);
}

// The sum of squares of the distances from the mean, divided by n - correction.
Number variance_row(DType dtype, const std::byte* row, int64_t n, double correction) {
  const double mean = sum_row(dtype, row, n).real / static_cast<double>(n);
  double squares = 0;
  for_chunks<double>(dtype, row, n, [&](const double* values, int64_t count) {
    for (int64_t i = 0; i < count; ++i) squares += (values[i] - mean) * (values[i] - mean);
  });
  return Number::of_double(squares / std::max(static_cast<double>(n) - correction, 0.0));
}

Number reduce_row(Reduction op, DType dtype, const std::byte* row, int64_t n) {
  switch (op) {
    case Reduction::kSum:
      return sum_row(dtype, row, n);
    case Reduction::kMean:
      return Number::of_double(sum_row(dtype, row, n).real / static_cast<double>(n));
    case Reduction::kAny:
      return Number::of_bool(any_of(dtype, row, n));
    case Reduction::kProduct:
      return product_row(dtype, row, n);
    case Reduction::kMax:
      return extreme(dtype, row, n, true).value;
    case Reduction::kMin:
      return extreme(dtype, row, n, false).value;
    case Reduction::kArgMax:
      return Number::of_int(extreme(dtype, row, n, true).index);
    default:
      return Number::of_int(extreme(dtype, row, n, false).index);
  }
}

// Returns whether the operator has no value for an empty row.
bool needs_values(Reduction op) {
  return op != Reduction::kSum && op != Reduction::kMean && op != Reduction::kAny &&
         op != Reduction::kProduct;
}

Status check_out(Reduction op, DType in, const Tensor& out) {
  if (op == Reduction::kArgMax || op == Reduction::kArgMin) return require_dtype(out, DType::kI64);
  const bool sums = op == Reduction::kSum || op == Reduction::kProduct;
  const DType result = op == Reduction::kAny        ? DType::kBool
                       : op == Reduction::kMean     ? promote(in, DType::kF16)
                       : sums && in == DType::kBool ? DType::kI64
                                                    : in;
  if (can_cast(result, out.dtype)) return {};
  return bad_input(
      fmt::format("a result of {} cannot be stored in {}", dtype_name(result), describe(out)));
}

Dims reduced_sizes(const Dims& sizes, uint32_t along, bool keepdim) {
  Dims out;
  for (int dim = 0; dim < sizes.rank(); ++dim) {
    const bool reduced = ((along >> dim) & 1U) != 0;
    if (!reduced) out.push_back(sizes[dim]);
    if (reduced && keepdim) out.push_back(1);
  }
  return out;
}

Status reduce(const Call& call, Reduction op, const Tensor& self, uint32_t along, bool keepdim,
              Tensor& out) {
  FERRY_RETURN_IF_ERROR(check_out(op, self.dtype, out));
  FERRY_RETURN_IF_ERROR(resize(out, reduced_sizes(self.sizes, along, keepdim)));
  const Rows rows = as_rows(call, self, along);
  if (rows.length == 0 && needs_values(op) && rows.count > 0) {
    return bad_input(fmt::format("{} has no values to reduce", describe(self)));
  }
  const int64_t row_bytes = rows.length * self.element_bytes();
  for_pieces(call.pool, rows.count, rows_per_piece(rows.length), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const Number value = reduce_row(op, self.dtype, rows.data + row * row_bytes, rows.length);
      store_number(out.dtype, value, out.data + row * out.element_bytes());
    }
  });
  return {};
}

uint32_t all_dims(const Tensor& tensor) { return (1U << tensor.rank()) - 1; }

// Returns the dimensions of a list as bits; all dimensions for None or an empty list.
Result<uint32_t> dims_argument(const Call& call, size_t i, const Tensor& self) {
  if (call.args[i]->kind == Value::Kind::kNone || list(call, i).empty()) return all_dims(self);
  uint32_t along = 0;
  for (int64_t dim : FERRY_TRY(int_list(call, i))) {
    const uint32_t bit = 1U << FERRY_TRY(wrap_dim(dim, self.rank()));
    if ((along & bit) != 0) return bad_input(fmt::format("dimension {} appears twice", dim));
    along |= bit;
  }
  return along & all_dims(self);
}

}  // namespace

double sum_of_row(const float* row, int64_t length) {
  return sum_row(DType::kF32, reinterpret_cast<const std::byte*>(row), length).real;
}

Dims row_order(int rank, uint32_t along) {
  Dims order;
  for (const bool last : {false, true}) {
    for (int dim = 0; dim < rank; ++dim) {
      if ((((along >> dim) & 1U) != 0) == last) order.push_back(dim);
    }
  }
  return order;
}

Rows as_rows(const Call& call, const Tensor& tensor, uint32_t along) {
  Rows rows;
  rows.data = tensor.data;
  bool in_place = true;
  bool seen = false;  // whether a dimension along rows was seen
  for (int dim = 0; dim < tensor.rank(); ++dim) {
    const bool is_along = ((along >> dim) & 1U) != 0;
    (is_along ? rows.length : rows.count) *= tensor.size(dim);
    if (tensor.size(dim) == 1) continue;
    if (is_along) seen = true;
    if (!is_along && seen) in_place = false;
  }
  if (in_place || tensor.numel == 0) return rows;
  const Dims own = contiguous_strides(tensor.sizes);
  Dims sizes, strides;
  for (int64_t dim : row_order(tensor.rank(), along)) {
    sizes.push_back(tensor.size(static_cast<int>(dim)));
    strides.push_back(own[static_cast<int>(dim)]);
  }
  rows.copy.resize(static_cast<size_t>(tensor.bytes()));
  rows.data = rows.copy.data();
  strided_copy(call.pool, sizes, tensor.element_bytes(), strided(tensor, 0, strides),
               {rows.data, contiguous_strides(sizes)});
  return rows;
}

Status reduce_dims_dtype(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const uint32_t along = FERRY_TRY(dims_argument(call, 1, self));
  return reduce(call, static_cast<Reduction>(call.variant), self, along, boolean(call, 2),
                tensor(call, 4));
}

Status reduce_dims(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const uint32_t along = FERRY_TRY(dims_argument(call, 1, self));
  return reduce(call, static_cast<Reduction>(call.variant), self, along, boolean(call, 2),
                tensor(call, 3));
}

Status reduce_dim(const Call& call) {
  const Tensor& self = tensor(call, 0);
  uint32_t along = all_dims(self);
  if (const std::optional<int64_t> dim = optional_int(call, 1)) {
    along &= 1U << FERRY_TRY(wrap_dim(*dim, self.rank()));
  }
  return reduce(call, static_cast<Reduction>(call.variant), self, along, boolean(call, 2),
                tensor(call, 3));
}

Status reduce_all(const Call& call) {
  const Tensor& self = tensor(call, 0);
  return reduce(call, static_cast<Reduction>(call.variant), self, all_dims(self), false,
                tensor(call, 1));
}

Status reduce_all_dtype(const Call& call) {
  const Tensor& self = tensor(call, 0);
  return reduce(call, static_cast<Reduction>(call.variant), self, all_dims(self), false,
                tensor(call, 2));
}

Status reduce_dim_dtype(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const int dim = FERRY_TRY(wrap_dim(integer(call, 1), self.rank()));
  return reduce(call, static_cast<Reduction>(call.variant), self, all_dims(self) & (1U << dim),
                boolean(call, 2), tensor(call, 4));
}

Status variance(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 4);
  const uint32_t along = FERRY_TRY(dims_argument(call, 1, self));
  const std::optional<Number> stated = optional_number(call, 2);
  const double correction = stated ? stated->real : 1;
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  if (!is_floating(self.dtype)) return bad_input(fmt::format("the variance of {}", describe(self)));
  FERRY_RETURN_IF_ERROR(resize(out, reduced_sizes(self.sizes, along, boolean(call, 3))));
  const Rows rows = as_rows(call, self, along);
  const int64_t row_bytes = rows.length * self.element_bytes();
  for_pieces(call.pool, rows.count, rows_per_piece(rows.length), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const Number value =
          variance_row(self.dtype, rows.data + row * row_bytes, rows.length, correction);
      store_number(out.dtype, value, out.data + row * out.element_bytes());
    }
  });
  if (call.variant != 2) return {};
  return reduce(call, Reduction::kMean, self, along, boolean(call, 3), tensor(call, 5));
}

Status reduce_with_index(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const int dim = FERRY_TRY(wrap_dim(integer(call, 1), self.rank()));
  const uint32_t along = all_dims(self) & (1U << dim);
  const bool largest = static_cast<Reduction>(call.variant) == Reduction::kMax;
  FERRY_RETURN_IF_ERROR(reduce(call, largest ? Reduction::kMax : Reduction::kMin, self, along,
                               boolean(call, 2), tensor(call, 3)));
  return reduce(call, largest ? Reduction::kArgMax : Reduction::kArgMin, self, along,
                boolean(call, 2), tensor(call, 4));
}

}  // namespace ferry::kernels
