// Matrix products: f32 and half precision by kernels/compute.h, f64 by compute_f64.h, integers
// here.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/compute.h"
#include "kernels/compute_f64.h"
#include "kernels/elementwise.h"
#include "kernels/joined.h"
#include "kernels/kernels.h"
#include "kernels/typed_values.h"

namespace ferry::kernels {
namespace {

bool is_compute_dtype(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
}

std::vector<float> as_f32(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.numel));
  load(tensor.dtype, tensor.data, values.data(), tensor.numel);
  return values;
}

// Sums of products of integers wrap, as in torch.
void integer_products(const Tensor& a, const Tensor& b, Tensor& out, int64_t batch, int64_t m,
                      int64_t n, int64_t k) {
  const InputValues<int64_t> x(a), y(b);
  OutputValues<int64_t> sums(out);
  for (int64_t row = 0; row < batch * m; ++row) {
    const int64_t* matrix = y.data() + row / m * k * n;
    for (int64_t column = 0; column < n; ++column) {
      uint64_t sum = 0;
      for (int64_t i = 0; i < k; ++i) {
        sum +=
            static_cast<uint64_t>(x[row * k + i]) * static_cast<uint64_t>(matrix[i * n + column]);
      }
      sums[row * n + column] = static_cast<int64_t>(sum);
    }
  }
  sums.finish();
}

// Computes out[batch,m,n] = a[batch,m,k] * b[batch,k,n] in any dtype but bool, equal for all three.
Status products(const Call& call, const Tensor& a, const Tensor& b, Tensor& out, int64_t batch,
                int64_t m, int64_t n, int64_t k) {
  if (out.numel == 0) return {};
  if (k == 0) {
    fill(out, Number::of_int(0));
    return {};
  }
  if (a.dtype == DType::kF64) {
    kernels::bmm_f64(a.as<double>(), b.as<double>(), out.as<double>(), batch, m, n, k, call.pool);
  } else if (a.dtype == DType::kF32) {
    kernels::bmm_f32(a.as<float>(), b.as<float>(), out.as<float>(), batch, m, n, k, call.pool);
  } else if (is_compute_dtype(a.dtype)) {
    std::vector<float> result(static_cast<size_t>(out.numel));
    kernels::bmm_f32(as_f32(a).data(), as_f32(b).data(), result.data(), batch, m, n, k, call.pool);
    store(out.dtype, result.data(), out.data, out.numel);
  } else if (is_integral(a.dtype)) {
    integer_products(a, b, out, batch, m, n, k);
  } else {
    return fail(ErrorCode::kUnsupported, fmt::format("a matrix product of {}", describe(a)));
  }
  return {};
}

Status require_product(const Tensor& a, const Tensor& b, const Tensor& out) {
  FERRY_RETURN_IF_ERROR(require_same_dtype(a, b));
  FERRY_RETURN_IF_ERROR(require_same_dtype(a, out));
  const int rank = a.rank();
  if (b.rank() == rank && a.size(rank - 1) == b.size(rank - 2) &&
      (rank == 2 || a.size(0) == b.size(0))) {
    return {};
  }
  return bad_input(fmt::format("shape mismatch: {} times {}", describe(a), describe(b)));
}

// Adds bias along the last dimension of out.
Status add_bias(const Call& call, const Tensor& bias, Tensor& out) {
  const Operand operands[] = {Operand(out), Operand(bias)};
  return add_scaled(call, operands[0], operands[1], Number::of_int(1), out.dtype, out);
}

// Computes out[m,n] = input[m,k] * weight[n,k] in f32, with a weight in half precision. Each task
// widens a few rows of the weight into memory that stays in its core's cache.
void linear_of_half(const Call& call, const Tensor& input, const Tensor& weight, Tensor& out,
                    int64_t m, int64_t n, int64_t k) {
  constexpr int64_t kElements = int64_t{1} << 15;
  const int64_t rows = std::clamp<int64_t>(kElements / k, 1, n);
  const auto task = [&](size_t index) {
    const int64_t begin = static_cast<int64_t>(index) * rows;
    const int64_t count = std::min(rows, n - begin);
    std::vector<float> wide(static_cast<size_t>(count * k));
    std::vector<float> part(static_cast<size_t>(count * m));
    kernels::cast(weight.dtype, weight.data + begin * k * weight.element_bytes(), DType::kF32,
                  wide.data(), count * k);
    ThreadPool alone(1);
    kernels::linear(DType::kF32, input.data, wide.data(), part.data(), m, count, k, alone);
    for (int64_t i = 0; i < m; ++i) {
      std::copy_n(part.data() + i * count, count, out.as<float>() + i * n + begin);
    }
  };
  call.pool.parallel_for(static_cast<size_t>((n + rows - 1) / rows), task);
}

}  // namespace

Status linear(const Call& call) {
  const Tensor& input = tensor(call, 0);
  const Tensor& weight = tensor(call, 1);
  const Tensor* bias = optional_tensor(call, 2);
  Tensor& out = tensor(call, 3);
  FERRY_RETURN_IF_ERROR(require_rank(weight, 2));
  // The result and the input are wider than the program states, but not the matrix.
  const bool widened =
      out.widened && input.dtype != weight.dtype && is_floating(weight.dtype) &&
      (input.dtype == DType::kF64 || (input.dtype == DType::kF32 && is_half(weight.dtype)));
  if (!widened) FERRY_RETURN_IF_ERROR(require_same_dtype(input, weight));
  FERRY_RETURN_IF_ERROR(require_same_dtype(input, out));
  if (input.rank() == 0 || input.sizes.back() != weight.size(1)) {
    return bad_input(
        fmt::format("shape mismatch: input {}, weight {}", describe(input), describe(weight)));
  }
  const int64_t k = weight.size(1);
  const int64_t n = weight.size(0);
  Dims sizes = input.sizes;
  sizes[sizes.rank() - 1] = n;
  if (bias != nullptr) {
    FERRY_RETURN_IF_ERROR(require_same_dtype(input, *bias));
    FERRY_RETURN_IF_ERROR(require_sizes(*bias, {n}));
  }
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  if (out.numel == 0) return {};
  const int64_t m = out.numel / n;
  if (k == 0) {
    fill(out, Number::of_int(0));
  } else if (input.dtype == DType::kF64) {
    kernels::linear_f64(input.as<double>(), weight.dtype, weight.data, out.as<double>(), m, n, k,
                        call.pool);
  } else if (widened) {
    linear_of_half(call, input, weight, out, m, n, k);
  } else if (is_compute_dtype(input.dtype)) {
    kernels::linear(input.dtype, input.data, weight.data, out.data, m, n, k, call.pool);
  } else {
    return fail(ErrorCode::kUnsupported, fmt::format("linear of {}", describe(input)));
  }
  return bias == nullptr ? Status() : add_bias(call, *bias, out);
}

Status mm(const Call& call) {
  const Tensor& a = tensor(call, 0);
  const Tensor& b = tensor(call, 1);
  Tensor& out = tensor(call, 2);
  FERRY_RETURN_IF_ERROR(require_rank(a, 2));
  FERRY_RETURN_IF_ERROR(require_product(a, b, out));
  FERRY_RETURN_IF_ERROR(resize(out, {a.size(0), b.size(1)}));
  return products(call, a, b, out, 1, a.size(0), b.size(1), a.size(1));
}

Status bmm(const Call& call) {
  const Tensor& a = tensor(call, 0);
  const Tensor& b = tensor(call, 1);
  Tensor& out = tensor(call, 2);
  FERRY_RETURN_IF_ERROR(require_rank(a, 3));
  FERRY_RETURN_IF_ERROR(require_product(a, b, out));
  FERRY_RETURN_IF_ERROR(resize(out, {a.size(0), a.size(1), b.size(2)}));
  return products(call, a, b, out, a.size(0), a.size(1), b.size(2), a.size(2));
}

Status addmm(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const Tensor& a = tensor(call, 1);
  const Tensor& b = tensor(call, 2);
  const Number beta = number(call, 3);
  const Number alpha = number(call, 4);
  Tensor& out = tensor(call, 5);
  FERRY_RETURN_IF_ERROR(require_rank(a, 2));
  FERRY_RETURN_IF_ERROR(require_product(a, b, out));
  FERRY_RETURN_IF_ERROR(require_same_dtype(a, self));
  const Dims sizes = {a.size(0), b.size(1)};
  if (!(FERRY_TRY(broadcast(self.sizes, sizes)) == sizes)) return require_sizes(self, sizes);
  FERRY_RETURN_IF_ERROR(resize(out, sizes));
  FERRY_RETURN_IF_ERROR(products(call, a, b, out, 1, a.size(0), b.size(1), a.size(1)));
  if (alpha.real != 1) {
    FERRY_RETURN_IF_ERROR(
        add_scaled(call, Operand(Number::of_int(0)), Operand(out), alpha, out.dtype, out));
  }
  if (beta.real == 0) return {};
  return add_scaled(call, Operand(out), Operand(self), beta, out.dtype, out);
}

namespace {

constexpr size_t kJoinedArgs = 11;

size_t size_of(const Tensor& of, int dim) { return static_cast<size_t>(of.size(dim)); }

// Returns how many columns the first piece has in memory, of the arguments that begin at `at`.
int64_t stored_columns(const Call& call, size_t at) {
  const int64_t stored = integer(call, at + 10);
  return stored > 0 ? stored : integer(call, at + 8);
}

// Reads the matrix of the arguments of joined_bmm that begin at `at`.
JoinedMatrix joined_matrix(const Call& call, size_t at) {
  const Tensor& whole = tensor(call, at + 1);
  const Tensor& first = tensor(call, at + 3);
  const Tensor* rest = call.args[at + 9]->tensor;
  const int64_t count = integer(call, at + 8), stored = stored_columns(call, at);
  const bool columns = boolean(call, at + 7);
  const auto stride = columns ? static_cast<size_t>(stored) : size_of(whole, 2);
  JoinedMatrix out{first.dtype,
                   first.data + integer(call, at + 4) / count * stored * first.element_bytes(),
                   static_cast<float>(number(call, at + 5).real),
                   static_cast<int32_t>(integer(call, at + 6)),
                   columns,
                   static_cast<size_t>(count),
                   static_cast<size_t>(std::min(stored, count)),
                   stride,
                   stride * (columns ? size_of(whole, 1) : static_cast<size_t>(stored)),
                   nullptr,
                   size_of(whole, 2),
                   size_of(whole, 1) * size_of(whole, 2)};
  const size_t before = out.columns ? out.count : out.count * out.rest_stride;
  if (rest == nullptr) {
    out.rest = whole.as<float>() + before;
    return out;
  }
  out.rest = rest->as<float>();
  out.rest_item = static_cast<size_t>(rest->numel) / size_of(whole, 0);
  if (out.columns) out.rest_stride -= out.count;
  return out;
}

bool overlap(const Tensor& a, const Tensor& b) {
  return a.data < b.data + b.bytes() && b.data < a.data + a.bytes();
}

}  // namespace

Status joined_bmm(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const Tensor& whole = tensor(call, 1);
  constexpr size_t kMask = kJoinedArgs, kSeen = kMask + 1;
  std::span<const ColumnRange> seen;
  if (call.args.size() > kSeen) {
    seen = seen_mask(call, kSeen).whole(tensor(call, kMask)).fine.span();
  }
  joined_bmm_f32({self.as<float>(), joined_matrix(call, 0), tensor(call, 2).as<float>(),
                  size_of(self, 0), size_of(self, 1), size_of(whole, 2), size_of(self, 2), seen},
                 call.pool);
  return {};
}

Status masked_attention(const Call& call) {
  constexpr size_t kValues = kJoinedArgs, kMask = 2 * kJoinedArgs, kSeen = kMask + 1;
  const Tensor& query = tensor(call, 0);
  const Tensor& keys = tensor(call, 1);
  const Tensor& values = tensor(call, kValues + 1);
  const Tensor& mask = tensor(call, kMask);
  Tensor& out = tensor(call, kValues + 2);
  const int64_t tokens = mask.size(mask.rank() - 2), context = mask.sizes.back();
  const Tensor* new_keys = call.args[kValues - 1]->tensor;
  const bool moves = overlap(out, query) || overlap(out, keys) || overlap(out, mask) ||
                     (new_keys != nullptr && overlap(out, *new_keys));
  float* result = moves ? tensor(call, 2).as<float>() : out.as<float>();
  const auto count = static_cast<size_t>(tokens);
  masked_attention_f32(
      {query.as<float>(), joined_matrix(call, 0), joined_matrix(call, kValues), mask.as<float>(),
       seen_mask(call, kSeen).blocks(mask), result, size_of(query, 0), size_of(query, 1) / count,
       count, size_of(query, 2), size_of(values, 2), static_cast<size_t>(context)},
      call.pool);
  if (moves) std::memmove(out.data, result, static_cast<size_t>(out.bytes()));
  return {};
}

}  // namespace ferry::kernels
