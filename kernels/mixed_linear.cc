// Products of f32 or f16 with matrices of i8 codes. Codes are widened and scaled as they are read,
// and sums are f32. The official kernels sum in the dtype of the input.
#include "kernels/compute.h"
#include "kernels/compute_scratch.h"
#include "kernels/dtypes.h"
#include "kernels/kernel.h"
#include "kernels/kernels.h"
#include "kernels/quantized_linear.h"

namespace ferry::kernels {
namespace {

// Computes out [m, n] = input [m, k] * matrix, where a piece of the matrix is widened at a time.
struct Product {
  const Tensor *input, *weight, *scales;
  int64_t m, n, k;
};

Result<Product> mixed_product(const Call& call, const Tensor& out, int k_dim) {
  Product p = {&tensor(call, 0), &tensor(call, 1), &tensor(call, 2), 0, 0, 0};
  FERRY_RETURN_IF_ERROR(require_rank(*p.input, 2));
  FERRY_RETURN_IF_ERROR(require_rank(*p.weight, 2));
  FERRY_RETURN_IF_ERROR(require_dtype(*p.weight, DType::kI8));
  if (p.input->dtype != DType::kF32) FERRY_RETURN_IF_ERROR(require_dtype(*p.input, DType::kF16));
  FERRY_RETURN_IF_ERROR(require_same_dtype(*p.scales, *p.input));
  if (optional_tensor(call, 3) != nullptr) {
    return fail(ErrorCode::kUnsupported, "zero points of a mixed product");
  }
  if (out.dtype != DType::kF32) FERRY_RETURN_IF_ERROR(require_dtype(out, DType::kF16));
  p.m = p.input->size(0);
  p.k = p.weight->size(k_dim);
  p.n = p.weight->size(1 - k_dim);
  if (p.input->size(1) == p.k) return p;
  return bad_input(
      fmt::format("shape mismatch: {} times {}", describe(*p.input), describe(*p.weight)));
}

// Returns the values of `tensor` in f32: its own memory, or a copy in `scratch`.
const float* f32_values(const Tensor& tensor, const Scratch& scratch) {
  if (tensor.dtype == DType::kF32) return tensor.as<float>();
  load(tensor.dtype, tensor.data, scratch.data(), tensor.numel);
  return scratch.data();
}
size_t copied(const Tensor& tensor) {
  return tensor.dtype == DType::kF32 ? 0 : static_cast<size_t>(tensor.numel);
}

// Computes `columns` columns of the result at a time: widen(begin, count, to), then multiply(to,
// count, part), whose part [m, count] is stored.
template <class Widen, class Multiply>
void by_columns(const Call& call, const Product& p, Tensor& out, const Widen& widen,
                const Multiply& multiply) {
  constexpr int64_t kElements = int64_t{1} << 15;
  const int64_t columns = std::clamp<int64_t>(kElements / p.k, 1, p.n);
  for_pieces(call.pool, p.n, columns, [&](int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    const Scratch wide(static_cast<size_t>(count * p.k));
    const Scratch part(static_cast<size_t>(count * p.m));
    widen(begin, count, wide.data());
    ThreadPool alone(1);
    multiply(wide.data(), count, part.data(), alone);
    for (int64_t i = 0; i < p.m; ++i) {
      store(out.dtype, part.data() + i * count, out.data + (i * p.n + begin) * out.element_bytes(),
            count);
    }
  });
}

void product_with(const Call& call, const Product& p, const float* input, const CodedMatrix& matrix,
                  Tensor& out) {
  const bool direct = out.dtype == DType::kF32;
  const Scratch result(direct ? 0 : static_cast<size_t>(out.numel));
  float* to = direct ? out.as<float>() : result.data();
  weight_only_linear(input, p.m, matrix, nullptr, to, call.pool);
  if (!direct) store(out.dtype, to, out.data, out.numel);
}

Status prepare(const Product& p, Tensor& out) {
  FERRY_RETURN_IF_ERROR(resize(out, {p.m, p.n}));
  if (p.k == 0) fill(out, Number::of_int(0));
  return {};
}

}  // namespace

Status mixed_linear(const Call& call) {
  const std::optional<int64_t> dtype = optional_int(call, 4);
  Tensor& out = tensor(call, 5);
  const Product p = FERRY_TRY(mixed_product(call, out, 1));
  if (!out.widened && dtype && *dtype != dtype_info(out.dtype).executorch) {
    return bad_input(fmt::format("{} is not of the scalar type of the result", describe(out)));
  }
  const int64_t groups = p.scales->rank() == 2 ? p.scales->size(1) : 1;
  if (p.scales->rank() == 0 || p.scales->rank() > 2 || p.scales->size(0) != p.n || groups == 0) {
    return bad_input(fmt::format("{} does not fit {}", describe(*p.scales), describe(*p.weight)));
  }
  FERRY_RETURN_IF_ERROR(prepare(p, out));
  if (out.numel == 0 || p.k == 0) return {};
  const Scratch input_copy(copied(*p.input)), scales_copy(copied(*p.scales));
  const float* input = f32_values(*p.input, input_copy);
  const float* scales = f32_values(*p.scales, scales_copy);
  const int64_t group = (p.k + groups - 1) / groups;
  if (group * groups == p.k) {
    CodedMatrix matrix{.bits = 8, .rows = p.n, .columns = p.k, .group = groups == 1 ? 0 : group};
    matrix.codes = p.weight->data;
    matrix.scales = reinterpret_cast<const std::byte*>(scales);
    product_with(call, p, input, matrix, out);
    return {};
  }
  const auto widen = [&](int64_t begin, int64_t count, float* to) {
    for (int64_t n = begin; n < begin + count; ++n, to += p.k) {
      const int8_t* codes = p.weight->as<int8_t>() + n * p.k;
      for (int64_t g = 0; g * group < p.k; ++g) {
        const float scale = scales[n * groups + g];
        for (int64_t k = g * group; k < std::min(p.k, (g + 1) * group); ++k) {
          to[k] = static_cast<float>(codes[k]) * scale;
        }
      }
    }
  };
  by_columns(call, p, out, widen,
             [&](const float* wide, int64_t count, float* part, ThreadPool& alone) {
               kernels::linear(DType::kF32, input, wide, part, p.m, count, p.k, alone);
             });
  return {};
}

Status mixed_mm(const Call& call) {
  Tensor& out = tensor(call, 4);
  const Product p = FERRY_TRY(mixed_product(call, out, 0));
  FERRY_RETURN_IF_ERROR(require_sizes(*p.scales, {p.k}));
  FERRY_RETURN_IF_ERROR(prepare(p, out));
  if (out.numel == 0 || p.k == 0) return {};
  const Scratch input_copy(copied(*p.input)), scales_copy(copied(*p.scales));
  const float* input = f32_values(*p.input, input_copy);
  const float* scales = f32_values(*p.scales, scales_copy);
  const auto widen = [&](int64_t begin, int64_t count, float* to) {
    for (int64_t k = 0; k < p.k; ++k, to += count) {
      const int8_t* codes = p.weight->as<int8_t>() + k * p.n + begin;
      for (int64_t i = 0; i < count; ++i) to[i] = static_cast<float>(codes[i]) * scales[k];
    }
  };
  by_columns(call, p, out, widen,
             [&](const float* wide, int64_t count, float* part, ThreadPool& alone) {
               kernels::bmm_f32(input, wide, part, 1, p.m, count, p.k, alone);
             });
  return {};
}

}  // namespace ferry::kernels
