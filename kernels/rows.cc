// Operators along one dimension: softmax, running sums, normalisation, the largest values.
#include "kernels/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/compute.h"
#include "kernels/dtypes.h"
#include "kernels/kernels.h"

namespace ferry::kernels {
namespace {

// Applies f(in, out, n) to every row of `self` along `dim`; rows of `out` have the same length.
template <class F>
Status along_dim(const Call& call, const Tensor& self, int64_t dim_argument, Tensor& out,
                 const F& f) {
  const int dim = FERRY_TRY(wrap_dim(dim_argument, self.rank()));
  FERRY_RETURN_IF_ERROR(resize(out, self.sizes));
  const uint32_t along = self.rank() == 0 ? 0 : 1U << dim;
  const Rows rows = as_rows(call, self, along);
  if (rows.length == 0) return {};
  std::vector<std::byte> moved(rows.copy.empty() ? 0 : static_cast<size_t>(out.bytes()));
  std::byte* target = moved.empty() ? out.data : moved.data();
  for_pieces(call.pool, rows.count, rows_per_piece(rows.length), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      f(rows.data + row * rows.length * self.element_bytes(),
        target + row * rows.length * out.element_bytes(), rows.length);
    }
  });
  if (moved.empty()) return {};
  // Restores the order of the dimensions.
  Dims sizes, strides;
  const Dims own = contiguous_strides(out.sizes);
  for (int64_t d : row_order(self.rank(), along)) {
    sizes.push_back(out.size(static_cast<int>(d)));
    strides.push_back(own[static_cast<int>(d)]);
  }
  strided_copy(call.pool, sizes, out.element_bytes(), {moved.data(), contiguous_strides(sizes)},
               strided(out, 0, strides));
  return {};
}

template <class C>
void exact_softmax(const C* values, C* out, int64_t n, bool logarithm) {
  const C largest = *std::max_element(values, values + n);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(values[i] - largest));
  const double log_sum = std::log(sum);
  for (int64_t i = 0; i < n; ++i) {
    const double shifted = static_cast<double>(values[i] - largest);
    out[i] = static_cast<C>(logarithm ? shifted - log_sum : std::exp(shifted) / sum);
  }
}

// A row of any dtype, computed as C.
template <class C>
void softmax_row(DType in_dtype, const std::byte* in, DType out_dtype, std::byte* out, int64_t n,
                 bool logarithm) {
  std::vector<C> values(static_cast<size_t>(n));
  load(in_dtype, in, values.data(), n);
  if (std::is_same_v<C, float> && !logarithm) {
    float* row = reinterpret_cast<float*>(values.data());
    kernels::softmax_row_f32(row, row, n);
  } else {
    std::vector<C> results(values.size());
    exact_softmax(values.data(), results.data(), n, logarithm);
    values.swap(results);
  }
  store(out_dtype, values.data(), out, n);
}

template <class C>
void cumsum_row(DType in_dtype, const std::byte* in, DType out_dtype, std::byte* out, int64_t n) {
  using Sum = std::conditional_t<std::is_integral_v<C>, uint64_t, double>;  // integers wrap
  Sum sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    C value;
    load(in_dtype, in + i * dtype_bytes(in_dtype), &value, 1);
    sum += static_cast<Sum>(value);
    const C total = static_cast<C>(sum);
    store(out_dtype, &total, out + i * dtype_bytes(out_dtype), 1);
  }
}

// The shapes of native_layer_norm: rows of `length`, and the shape of their mean and rstd.
struct NormShape {
  int64_t rows = 1, length = 1;
  Dims statistics;
};

Result<NormShape> norm_shape(const Tensor& input, const Dims& normalized) {
  NormShape shape;
  const int kept = input.rank() - normalized.rank();
  if (kept < 0 || normalized.rank() == 0 ||
      !std::equal(normalized.begin(), normalized.end(), input.sizes.begin() + std::max(kept, 0))) {
    return bad_input(
        fmt::format("shape mismatch: {} does not end in the normalized shape", describe(input)));
  }
  for (int dim = 0; dim < input.rank(); ++dim) {
    (dim < kept ? shape.rows : shape.length) *= input.size(dim);
    shape.statistics.push_back(dim < kept ? input.size(dim) : 1);
  }
  return shape;
}

struct NormOperands {
  const Tensor& input;
  const Tensor *weight, *bias;  // may be nullptr
  double eps;
  Tensor &out, &mean, &rstd;
};

double sum_of(const std::vector<float>& row) {
  return static_cast<double>(kernels::sum_f32(row.data(), std::ssize(row)));
}
double sum_of(const std::vector<double>& row) {
  return std::accumulate(row.begin(), row.end(), 0.0);
}

// Rows are read and scaled in T; statistics are f64.
template <class T>
void normalize_rows(const Call& call, const NormShape& shape, const NormOperands& a) {
  if (shape.length == 0) return;
  const auto values_of = [&](const Tensor* t, T otherwise) {
    std::vector<T> values(static_cast<size_t>(shape.length), otherwise);
    if (t != nullptr) load(t->dtype, t->data, values.data(), shape.length);
    return values;
  };
  const std::vector<T> scale = values_of(a.weight, 1), shift = values_of(a.bias, 0);
  const auto piece = [&](int64_t begin, int64_t end) {
    std::vector<T> row(scale.size());
    const double n = static_cast<double>(shape.length);
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * shape.length;
      load(a.input.dtype, a.input.data + at * a.input.element_bytes(), row.data(), shape.length);
      const double center = sum_of(row) / n;
      double squares = 0;
      for (T v : row) {
        squares += (static_cast<double>(v) - center) * (static_cast<double>(v) - center);
      }
      const double inverse = 1 / std::sqrt(squares / n + a.eps);
      for (size_t i = 0; i < row.size(); ++i) {
        const double normal = (static_cast<double>(row[i]) - center) * inverse;
        row[i] = static_cast<T>(normal) * scale[i] + shift[i];
      }
      store(a.out.dtype, row.data(), a.out.data + at * a.out.element_bytes(), shape.length);
      store_number(a.mean.dtype, Number::of_double(center),
                   a.mean.data + r * a.mean.element_bytes());
      store_number(a.rstd.dtype, Number::of_double(inverse),
                   a.rstd.data + r * a.rstd.element_bytes());
    }
  };
  for_pieces(call.pool, shape.rows, rows_per_piece(shape.length), piece);
}

bool is_nan(double x) { return std::isnan(x); }
bool is_nan(int64_t) { return false; }

// Writes the k greatest or least elements of each row, NaN being the greatest, and their places.
// Elements of a row of the outputs are `inner` elements apart. Elements are compared as T.
template <class T>
void first_of_rows(const Rows& rows, int64_t inner, int64_t k, bool largest, Tensor& values,
                   Tensor& indices) {
  std::vector<T> row(static_cast<size_t>(rows.length));
  std::vector<int64_t> order(row.size());
  const auto before = [&](int64_t a, int64_t b) {
    const T x = row[static_cast<size_t>(a)], y = row[static_cast<size_t>(b)];
    if (is_nan(x) != is_nan(y)) return is_nan(x) == largest;
    if (x != y && !is_nan(x)) return largest ? x > y : x < y;
    return a < b;
  };
  const int64_t bytes = values.element_bytes();
  for (int64_t r = 0; r < rows.count; ++r) {
    const std::byte* from = rows.data + r * rows.length * bytes;
    load(values.dtype, from, row.data(), rows.length);
    std::iota(order.begin(), order.end(), int64_t{0});
    std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
    for (int64_t i = 0; i < k; ++i) {
      const int64_t to = (r / inner * k + i) * inner + r % inner;
      const int64_t place = order[static_cast<size_t>(i)];
      std::memcpy(values.data + to * bytes, from + place * bytes, static_cast<size_t>(bytes));
      indices.as<int64_t>()[to] = place;
    }
  }
}

}  // namespace

Status softmax(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 3);
  if (!is_floating(self.dtype) || !is_floating(out.dtype)) {
    return bad_input(
        fmt::format("softmax of {} cannot be stored in {}", describe(self), describe(out)));
  }
  const bool logarithm = call.variant == 1;
  return along_dim(
      call, self, integer(call, 1), out, [&](const std::byte* in, std::byte* to, int64_t n) {
        if (self.dtype == DType::kF64) {
          softmax_row<double>(self.dtype, in, out.dtype, to, n, logarithm);
        } else if (self.dtype == DType::kF32 && out.dtype == DType::kF32 && !logarithm) {
          kernels::softmax_row_f32(reinterpret_cast<const float*>(in), reinterpret_cast<float*>(to),
                                   n);
        } else {
          softmax_row<float>(self.dtype, in, out.dtype, to, n, logarithm);
        }
      });
}

Status cumsum(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 3);
  if (!can_cast(self.dtype, out.dtype)) {
    return bad_input(
        fmt::format("cumulative sums of {} cannot be stored in {}", describe(self), describe(out)));
  }
  return along_dim(call, self, integer(call, 1), out,
                   [&](const std::byte* in, std::byte* to, int64_t n) {
                     if (is_floating(out.dtype)) {
                       cumsum_row<double>(self.dtype, in, out.dtype, to, n);
                     } else {
                       cumsum_row<int64_t>(self.dtype, in, out.dtype, to, n);
                     }
                   });
}

Status layer_norm(const Call& call) {
  const Tensor& input = tensor(call, 0);
  const Tensor* weight = optional_tensor(call, 2);
  const Tensor* bias = optional_tensor(call, 3);
  const double eps = number(call, 4).real;
  Tensor& out = tensor(call, 5);
  Tensor& mean = tensor(call, 6);
  Tensor& rstd = tensor(call, 7);
  const Dims normalized = FERRY_TRY(int_list(call, 1));
  const NormShape shape = FERRY_TRY(norm_shape(input, normalized));
  for (const Tensor* t : {weight, bias}) {
    if (t != nullptr) FERRY_RETURN_IF_ERROR(require_sizes(*t, normalized));
  }
  for (const Tensor* t : {&input, static_cast<const Tensor*>(&out),
                          static_cast<const Tensor*>(&mean), static_cast<const Tensor*>(&rstd)}) {
    if (!is_floating(t->dtype)) return bad_input(fmt::format("{} must be floating", describe(*t)));
  }
  FERRY_RETURN_IF_ERROR(resize(out, input.sizes));
  FERRY_RETURN_IF_ERROR(resize(mean, shape.statistics));
  FERRY_RETURN_IF_ERROR(resize(rstd, shape.statistics));
  const auto rows = [&](auto zero) {
    normalize_rows<decltype(zero)>(call, shape, {input, weight, bias, eps, out, mean, rstd});
  };
  input.dtype == DType::kF64 ? rows(double{}) : rows(float{});
  return {};
}

Status topk(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const int64_t k = integer(call, 1);
  Tensor& values = tensor(call, 5);
  Tensor& indices = tensor(call, 6);
  const int dim = FERRY_TRY(wrap_dim(integer(call, 2), self.rank()));
  const bool one = self.rank() == 0;
  if (k < (one ? 1 : 0) || k > (one ? 1 : self.size(dim))) {
    return bad_input(fmt::format("k is {}, out of range for {}", k, describe(self)));
  }
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, values));
  FERRY_RETURN_IF_ERROR(require_dtype(indices, DType::kI64));
  Dims sizes = self.sizes;
  if (!one) sizes[dim] = k;
  FERRY_RETURN_IF_ERROR(resize(values, sizes));
  FERRY_RETURN_IF_ERROR(resize(indices, sizes));
  if (self.numel == 0) return {};
  const Rows rows = as_rows(call, self, one ? 0 : 1U << dim);
  const int64_t inner = one ? 1 : numel(self.sizes.span().subspan(static_cast<size_t>(dim) + 1));
  if (is_floating(self.dtype)) {
    first_of_rows<double>(rows, inner, k, boolean(call, 3), values, indices);
  } else {
    first_of_rows<int64_t>(rows, inner, k, boolean(call, 3), values, indices);
  }
  return {};
}

}  // namespace ferry::kernels
