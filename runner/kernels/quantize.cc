// Quantization with one scale for a whole tensor:
//   code = clamp(round(x * (1 / scale)) + zero_point, quant_min, quant_max), halves to even
//   x = (code - zero_point) * scale
// as the official kernels compute it: the scale, its reciprocal and products in f32. NaN becomes
// quant_min; infinities and what is out of range become the nearest limit.
#include <cmath>
#include <limits>

#include "runner/kernels/compute_scratch.h"
#include "runner/kernels/dtypes.h"
#include "runner/kernels/kernel.h"
#include "runner/kernels/kernels.h"

namespace ferry::kernels {
namespace {

constexpr int64_t kPiece = int64_t{1} << 14;

struct Encoding {
  float scale;
  int64_t zero_point, least, greatest;
};

bool holds_codes(DType dtype) {
  return dtype == DType::kU8 || dtype == DType::kI8 || dtype == DType::kU16 ||
         dtype == DType::kI16 || dtype == DType::kI32;
}

// Calls f(Tag<storage type>) for a dtype that holds codes.
template <class F>
void for_codes(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kU8:
      return f(Tag<uint8_t>());
    case DType::kI8:
      return f(Tag<int8_t>());
    case DType::kU16:
      return f(Tag<uint16_t>());
    case DType::kI16:
      return f(Tag<int16_t>());
    default:
      return f(Tag<int32_t>());
  }
}

// Differences of codes fit Wide; Real holds their integers exactly, and adding kToInteger rounds a
// number between them to the nearest integer, a half to an even one.
template <class T>
struct Codes {
  static constexpr bool kSmall = sizeof(T) < 4;
  using Wide = std::conditional_t<kSmall, int32_t, int64_t>;
  using Real = std::conditional_t<kSmall, float, double>;
  static constexpr Real kToInteger = static_cast<Real>(kSmall ? 0x1.8p23 : 0x1.8p52);
};

Status check_range(const Encoding& e, const Tensor& codes) {
  Encoding limits = {};
  for_codes(codes.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    limits.least = std::numeric_limits<T>::min();
    limits.greatest = std::numeric_limits<T>::max();
  });
  if (e.least < limits.least || e.least > e.greatest || e.greatest > limits.greatest) {
    return bad_input(
        fmt::format("codes from {} to {} in {}", e.least, e.greatest, describe(codes)));
  }
  if (e.zero_point < limits.least || e.zero_point > limits.greatest) {
    return bad_input(fmt::format("a zero point of {} for {}", e.zero_point, describe(codes)));
  }
  return {};
}

// Arguments 1 to 5: scale, zero_point, quant_min, quant_max, dtype of the codes.
Result<Encoding> encoding_of(const Call& call, const Tensor& codes) {
  const Encoding e = {static_cast<float>(number(call, 1).real), integer(call, 2), integer(call, 3),
                      integer(call, 4)};
  if (!holds_codes(codes.dtype)) {
    return bad_input(fmt::format("{} must be u8, i8, u16, i16 or i32", describe(codes)));
  }
  if (integer(call, 5) != dtype_info(codes.dtype).executorch) {
    return bad_input(fmt::format("{} is not of scalar type {}", describe(codes), integer(call, 5)));
  }
  if (!std::isnormal(e.scale) || e.scale < 0 || !std::isnormal(1 / e.scale)) {
    return bad_input(fmt::format("a scale of {}", number(call, 1).real));
  }
  FERRY_RETURN_IF_ERROR(check_range(e, codes));
  return e;
}

Status require_float(const Tensor& tensor) {
  if (is_castable(tensor.dtype)) return {};
  return bad_input(fmt::format("{} must be f32, f16 or bf16", describe(tensor)));
}

template <class T>
void to_codes(const float* from, T* to, int64_t n, const Encoding& e) {
  using Wide = typename Codes<T>::Wide;
  using Real = typename Codes<T>::Real;
  const float inverse = 1 / e.scale;
  const Real least = static_cast<Real>(e.least - e.zero_point);
  const Real greatest = static_cast<Real>(e.greatest - e.zero_point);
  const Wide zero_point = static_cast<Wide>(e.zero_point);
  for (int64_t i = 0; i < n; ++i) {
    Real value = from[i] * inverse;
    value = value > least ? value : least;  // NaN too
    value = value < greatest ? value : greatest;
    const Real rounded = (value + Codes<T>::kToInteger) - Codes<T>::kToInteger;
    to[i] = static_cast<T>(static_cast<Wide>(rounded) + zero_point);
  }
}

template <class T>
void from_codes(const T* from, float* to, int64_t n, const Encoding& e) {
  using Wide = typename Codes<T>::Wide;
  const Wide zero_point = static_cast<Wide>(e.zero_point);
  for (int64_t i = 0; i < n; ++i) {
    to[i] = static_cast<float>(static_cast<Wide>(from[i]) - zero_point) * e.scale;
  }
}

// f(floats, begin, n) for a piece [begin, begin + n) of `tensor`: the tensor itself if it is f32,
// else scratch memory.
template <class F>
void with_floats(const Tensor& tensor, int64_t begin, int64_t n, const F& f) {
  if (tensor.dtype == DType::kF32) return f(reinterpret_cast<float*>(tensor.data) + begin);
  const Scratch scratch(static_cast<size_t>(n));
  f(scratch.data());
}

}  // namespace

Status quantize(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 6);
  FERRY_RETURN_IF_ERROR(require_float(self));
  const Encoding encoding = FERRY_TRY(encoding_of(call, out));
  FERRY_RETURN_IF_ERROR(resize(out, self.sizes));
  const auto piece = [&](int64_t begin, int64_t end) {
    with_floats(self, begin, end - begin, [&](float* values) {
      if (self.dtype != DType::kF32) {
        load(self.dtype, self.data + begin * self.element_bytes(), values, end - begin);
      }
      for_codes(out.dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        to_codes(values, out.as<T>() + begin, end - begin, encoding);
      });
    });
  };
  for_pieces(call.pool, self.numel, kPiece, piece);
  return {};
}

Status dequantize(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const std::optional<int64_t> dtype = optional_int(call, 6);
  Tensor& out = tensor(call, 7);
  FERRY_RETURN_IF_ERROR(require_float(out));
  if (!out.widened &&
      dtype.value_or(dtype_info(DType::kF32).executorch) != dtype_info(out.dtype).executorch) {
    return bad_input(fmt::format("{} is not of the scalar type of the result", describe(out)));
  }
  const Encoding encoding = FERRY_TRY(encoding_of(call, self));
  FERRY_RETURN_IF_ERROR(resize(out, self.sizes));
  const auto piece = [&](int64_t begin, int64_t end) {
    with_floats(out, begin, end - begin, [&](float* values) {
      for_codes(self.dtype, [&](auto tag) {
        using T = typename decltype(tag)::type;
        from_codes(self.as<T>() + begin, values, end - begin, encoding);
      });
      if (out.dtype != DType::kF32) {
        store(out.dtype, values, out.data + begin * out.element_bytes(), end - begin);
      }
    });
  };
  for_pieces(call.pool, self.numel, kPiece, piece);
  return {};
}

}  // namespace ferry::kernels
