// Distances between rows: aten::_cdist_forward and aten::_pdist_forward.
#include <cmath>
#include <limits>

#include "kernels/kernel.h"
#include "kernels/kernels.h"
#include "kernels/strided_copy.h"

namespace ferry::kernels {
namespace {

// The p-norm of the difference of two rows of n values.
template <class C>
C row_distance(const C* a, const C* b, int64_t n, double p) {
  C sum = 0;
  if (p == 2) {
    for (int64_t i = 0; i < n; ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
    return std::sqrt(sum);
  }
  if (std::isinf(p)) {
    for (int64_t i = 0; i < n; ++i) {
      const C apart = std::abs(a[i] - b[i]);
      if (apart > sum || apart != apart) sum = apart;
    }
    return sum;
  }
  for (int64_t i = 0; i < n; ++i) {
    const C apart = std::abs(a[i] - b[i]);
    sum += p == 1   ? apart
           : p == 0 ? static_cast<C>(apart != 0)
                    : std::pow(apart, static_cast<C>(p));
  }
  return p == 0 || p == 1 ? sum : std::pow(sum, static_cast<C>(1 / p));
}

Status check_norm(double p) {
  return p >= 0 ? Status() : bad_input(fmt::format("the norm {} is not 0 or more", p));
}

Status require_floats(const Tensor& x) {
  if (x.dtype == DType::kF32 || x.dtype == DType::kF64) return {};
  return bad_input(fmt::format("{} must be f32 or f64", describe(x)));
}

Dims without_matrix(const Tensor& x) {
  Dims sizes = x.sizes;
  sizes.pop_back();
  sizes.pop_back();
  return sizes;
}

// The matrices of a batch, which broadcast to `sizes`.
struct Batch {
  const Tensor& x;
  const Dims& sizes;
  Dims strides;  // in matrices

  Batch(const Tensor& rows, const Dims& all)
      : x(rows), sizes(all), strides(expanded_strides(without_matrix(rows), all)) {}
  // Returns where the matrix begins that has a place in the broadcast batch.
  int64_t begin(int64_t place) const {
    int64_t matrix = 0;
    for (int dim = sizes.rank() - 1; dim >= 0; --dim) {
      matrix += place % sizes[dim] * strides[dim];
      place /= sizes[dim];
    }
    return matrix * x.size(x.rank() - 2) * x.sizes.back();
  }
};

template <class C>
void all_distances(const Call& call, const Batch& a, const Batch& b, double p, Tensor& out) {
  const int64_t rows = out.size(out.rank() - 2), columns = out.sizes.back();
  const int64_t width = a.x.sizes.back();
  const int64_t cost = std::max<int64_t>(1, columns * std::max<int64_t>(1, width));
  for_pieces(call.pool, out.numel / columns, std::max<int64_t>(1, 32768 / cost),
             [&](int64_t begin, int64_t end) {
               for (int64_t i = begin; i < end; ++i) {
                 const C* from = a.x.as<C>() + a.begin(i / rows) + i % rows * width;
                 const C* to = b.x.as<C>() + b.begin(i / rows);
                 for (int64_t j = 0; j < columns; ++j) {
                   out.as<C>()[i * columns + j] = row_distance(from, to + j * width, width, p);
                 }
               }
             });
}

}  // namespace

Status row_distances(const Call& call) {
  const Tensor& a = tensor(call, 0);
  const Tensor& b = tensor(call, 1);
  Tensor& out = tensor(call, 4);
  const double p = number(call, 2).real;
  FERRY_RETURN_IF_ERROR(check_norm(p));
  FERRY_RETURN_IF_ERROR(require_same_dtype(a, out));
  FERRY_RETURN_IF_ERROR(require_same_dtype(b, out));
  FERRY_RETURN_IF_ERROR(require_floats(a));
  const std::optional<int64_t> mode = optional_int(call, 3);
  if (mode && (*mode < 0 || *mode > 2)) return bad_input(fmt::format("compute mode {}", *mode));
  if (a.rank() < 2 || b.rank() < 2 || a.sizes.back() != b.sizes.back()) {
    return bad_input(fmt::format("{} and {} have no rows of one length", describe(a), describe(b)));
  }
  const Dims batch = FERRY_TRY(broadcast(without_matrix(a), without_matrix(b)));
  Dims sizes = batch;
  sizes.push_back(a.size(a.rank() - 2));
  sizes.push_back(b.size(b.rank() - 2));
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  if (out.numel == 0) return {};
  const Batch from(a, batch), to(b, batch);
  if (a.dtype == DType::kF64) {
    all_distances<double>(call, from, to, p, out);
  } else {
    all_distances<float>(call, from, to, p, out);
  }
  return {};
}

Status pair_distances(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 2);
  const double p = number(call, 1).real;
  FERRY_RETURN_IF_ERROR(check_norm(p));
  FERRY_RETURN_IF_ERROR(require_same_dtype(self, out));
  FERRY_RETURN_IF_ERROR(require_floats(self));
  FERRY_RETURN_IF_ERROR(require_rank(self, 2));
  const int64_t rows = self.size(0), width = self.size(1);
  if (rows > (int64_t{1} << 31)) return bad_input(fmt::format("{} is too large", describe(self)));
  FERRY_RETURN_IF_ERROR(resize(out, {rows * std::max<int64_t>(rows - 1, 0) / 2}));
  int64_t at = 0;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = i + 1; j < rows; ++j, ++at) {
      if (self.dtype == DType::kF64) {
        const double* x = self.as<double>();
        out.as<double>()[at] = row_distance(x + i * width, x + j * width, width, p);
      } else {
        const float* x = self.as<float>();
        out.as<float>()[at] = row_distance(x + i * width, x + j * width, width, p);
      }
    }
  }
  return {};
}

}  // namespace ferry::kernels
