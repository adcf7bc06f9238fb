// Quantization with one scale for a whole tensor, or one for each row of its last dimension:
//   code = clamp(round(x * (1 / scale)) + zero_point, quant_min, quant_max), halves to even
//   x = (code - zero_point) * scale
// The official kernels compute the scale, its reciprocal and products in f32, and so do these. NaN
// becomes quant_min; infinities and values out of range become the nearest limit.
#include <cmath>
#include <limits>

#include "kernels/compute_scratch.h"
#include "kernels/dtypes.h"
#include "kernels/kernel.h"
#include "kernels/kernels.h"

namespace ferry::kernels {
namespace {

constexpr int64_t kQuantizedPiece = int64_t{1} << 14;

struct CodeEncoding {
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

// Differences of codes fit Wide. Real holds their integers exactly, and adding kToInteger rounds a
// number between them to the nearest integer, halves to even.
template <class T>
struct Codes {
  static constexpr bool kSmall = sizeof(T) < 4;
  using Wide = std::conditional_t<kSmall, int32_t, int64_t>;
  using Real = std::conditional_t<kSmall, float, double>;
  static constexpr Real kToInteger = static_cast<Real>(kSmall ? 0x1.8p23 : 0x1.8p52);
};

Status check_range(const CodeEncoding& e, const Tensor& codes) {
  CodeEncoding limits = {};
  for_codes(codes.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    limits.least = int64_t{std::numeric_limits<T>::min()};
    limits.greatest = int64_t{std::numeric_limits<T>::max()};
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

// Arguments 3 to 5 are quant_min, quant_max, dtype of the codes.
Result<CodeEncoding> encoding_with(const Call& call, double scale, int64_t zero_point,
                                   const Tensor& codes) {
  const CodeEncoding e = {static_cast<float>(scale), zero_point, integer(call, 3),
                          integer(call, 4)};
  if (!holds_codes(codes.dtype)) {
    return bad_input(fmt::format("{} must be u8, i8, u16, i16 or i32", describe(codes)));
  }
  if (integer(call, 5) != dtype_info(codes.dtype).executorch) {
    return bad_input(fmt::format("{} is not of scalar type {}", describe(codes), integer(call, 5)));
  }
  if (!std::isnormal(e.scale) || e.scale < 0 || !std::isnormal(1 / e.scale)) {
    return bad_input(fmt::format("a scale of {}", scale));
  }
  FERRY_RETURN_IF_ERROR(check_range(e, codes));
  return e;
}

// Arguments 1 to 5 are scale, zero_point and the arguments of encoding_with().
Result<CodeEncoding> encoding_of(const Call& call, const Tensor& codes) {
  return encoding_with(call, number(call, 1).real, integer(call, 2), codes);
}

Status require_float(const Tensor& tensor) {
  if (is_castable(tensor.dtype)) return {};
  return bad_input(fmt::format("{} must be f32, f16 or bf16", describe(tensor)));
}

template <class T>
void to_codes(const float* from, T* to, int64_t n, const CodeEncoding& e) {
  using Wide = typename Codes<T>::Wide;
  using Real = typename Codes<T>::Real;
  const float inverse = 1 / e.scale;
  const Real least = static_cast<Real>(e.least - e.zero_point);
  const Real greatest = static_cast<Real>(e.greatest - e.zero_point);
  const Wide zero_point = static_cast<Wide>(e.zero_point);
  for (int64_t i = 0; i < n; ++i) {
    Real value = from[i] * inverse;
    value = value > least ? value : least;  // also if the value is NaN
    value = value < greatest ? value : greatest;
    const Real rounded = (value + Codes<T>::kToInteger) - Codes<T>::kToInteger;
    to[i] = static_cast<T>(static_cast<Wide>(rounded) + zero_point);
  }
}

template <class T>
void from_codes(const T* from, float* to, int64_t n, const CodeEncoding& e) {
  using Wide = typename Codes<T>::Wide;
  const Wide zero_point = static_cast<Wide>(e.zero_point);
  for (int64_t i = 0; i < n; ++i) {
    to[i] = static_cast<float>(static_cast<Wide>(from[i]) - zero_point) * e.scale;
  }
}

// Calls f(floats, begin, n) for a piece [begin, begin + n) of `tensor`. The floats are the tensor's
// memory if it is f32, else scratch memory.
template <class F>
void with_floats(const Tensor& tensor, int64_t begin, int64_t n, const F& f) {
  if (tensor.dtype == DType::kF32) return f(reinterpret_cast<float*>(tensor.data) + begin);
  const Scratch scratch(static_cast<size_t>(n));
  f(scratch.data());
}

// -- rows of the last dimension

Dims row_shape(const Tensor& tensor) {
  Dims sizes = tensor.sizes;
  if (sizes.rank() > 0) sizes[sizes.rank() - 1] = 1;
  return sizes;
}

CodeEncoding row_encoding(const Call& call, int64_t row) {
  const Tensor& scales = tensor(call, 1);
  const double scale = load_number(scales.dtype, scales.data + row * scales.element_bytes()).real;
  return {static_cast<float>(scale), tensor(call, 2).as<int64_t>()[row], integer(call, 3),
          integer(call, 4)};
}

// Checks arguments 1 to 5 for the rows of `self`, whose scales are f64 or f32. Rows that are only
// read may have a scale of 0, as the rows of a cache that nothing was written into have.
Status check_row_encodings(const Call& call, const Tensor& self, const Tensor& codes) {
  const Tensor& scales = tensor(call, 1);
  const Tensor& zero_points = tensor(call, 2);
  if (self.rank() == 0) return bad_input(fmt::format("{} has no rows", describe(self)));
  if (scales.dtype != DType::kF32) FERRY_RETURN_IF_ERROR(require_dtype(scales, DType::kF64));
  FERRY_RETURN_IF_ERROR(require_dtype(zero_points, DType::kI64));
  const int64_t rows = numel(row_shape(self).span());
  for (const Tensor* each : {&scales, &zero_points}) {
    if (each->numel != rows) {
      return bad_input(fmt::format("{} for {} rows", describe(*each), rows));
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    const CodeEncoding e = row_encoding(call, row);
    const bool unwritten = e.scale == 0 && &self == &codes;
    FERRY_RETURN_IF_ERROR(encoding_with(call, unwritten ? 1 : e.scale, e.zero_point, codes));
  }
  return {};
}

// Calls f(row, begin, end) with the elements of row `row`.
template <class F>
void for_rows(const Call& call, const Tensor& self, const F& f) {
  if (self.numel == 0) return;
  const int64_t columns = self.sizes.back();
  const int64_t piece = std::max<int64_t>(1, kQuantizedPiece / columns);
  for_pieces(call.pool, self.numel / columns, piece, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row, row * columns, (row + 1) * columns);
  });
}

// Returns the scale and zero point that hold every value of the row, and 0 exactly, in i8 codes.
std::pair<double, int64_t> choose_encoding(const float* row, int64_t n) {
  constexpr double kLeast = -128, kGreatest = 127;
  constexpr float kSmall = 6.1e-5F;  // the smallest scale
  float low = 0, high = 0;
  for (int64_t i = 0; i < n; ++i) {
    low = row[i] < low ? row[i] : low;
    high = row[i] > high ? row[i] : high;
  }
  double scale = (static_cast<double>(high) - low) / (kGreatest - kLeast);
  if (static_cast<float>(scale) == 0 || std::isinf(1 / static_cast<float>(scale))) scale = 0.1;
  if (scale < kSmall) {
    const float larger = kSmall / static_cast<float>(scale);
    const float range = kSmall * static_cast<float>(kGreatest - kLeast);
    const bool only_high = low == 0, only_low = high == 0;
    high = only_high ? range : only_low ? 0 : high * larger;
    low = only_high ? 0 : only_low ? -range : low * larger;
    scale = kSmall;
  }
  // The zero point is computed from the end of the range with the smaller rounding error.
  const double from_low = kLeast - low / scale, from_high = kGreatest - high / scale;
  const bool use_low = -kLeast - std::abs(low / scale) < kGreatest - std::abs(high / scale);
  const double zero = std::nearbyint(std::clamp(use_low ? from_low : from_high, kLeast, kGreatest));
  return {scale, to_integer<int64_t>(zero)};
}

}  // namespace

Status quantize(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 6);
  if (!self.widened) FERRY_RETURN_IF_ERROR(require_float(self));
  const CodeEncoding encoding = FERRY_TRY(encoding_of(call, out));
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
  for_pieces(call.pool, self.numel, kQuantizedPiece, piece);
  return {};
}

Status dequantize(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const std::optional<int64_t> dtype = optional_int(call, 6);
  Tensor& out = tensor(call, 7);
  if (!out.widened) FERRY_RETURN_IF_ERROR(require_float(out));
  if (!out.widened &&
      dtype.value_or(dtype_info(DType::kF32).executorch) != dtype_info(out.dtype).executorch) {
    return bad_input(fmt::format("{} is not of the scalar type of the result", describe(out)));
  }
  const CodeEncoding encoding = FERRY_TRY(encoding_of(call, self));
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
  for_pieces(call.pool, self.numel, kQuantizedPiece, piece);
  return {};
}

Status quantize_rows(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 6);
  FERRY_RETURN_IF_ERROR(require_dtype(self, DType::kF32));
  FERRY_RETURN_IF_ERROR(check_row_encodings(call, self, out));
  FERRY_RETURN_IF_ERROR(resize(out, self.sizes));
  for_rows(call, self, [&](int64_t row, int64_t begin, int64_t end) {
    for_codes(out.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      to_codes(self.as<float>() + begin, out.as<T>() + begin, end - begin, row_encoding(call, row));
    });
  });
  return {};
}

Status dequantize_rows(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 7);
  FERRY_RETURN_IF_ERROR(require_dtype(out, DType::kF32));
  if (!out.widened && integer(call, 6) != dtype_info(out.dtype).executorch) {
    return bad_input(fmt::format("{} is not of the scalar type of the result", describe(out)));
  }
  FERRY_RETURN_IF_ERROR(check_row_encodings(call, self, self));
  FERRY_RETURN_IF_ERROR(resize(out, self.sizes));
  for_rows(call, self, [&](int64_t row, int64_t begin, int64_t end) {
    for_codes(self.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      from_codes(self.as<T>() + begin, out.as<float>() + begin, end - begin,
                 row_encoding(call, row));
    });
  });
  return {};
}

Status choose_row_encodings(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& scales = tensor(call, 2);
  Tensor& zero_points = tensor(call, 3);
  FERRY_RETURN_IF_ERROR(require_dtype(self, DType::kF32));
  FERRY_RETURN_IF_ERROR(require_dtype(scales, DType::kF64));
  FERRY_RETURN_IF_ERROR(require_dtype(zero_points, DType::kI64));
  if (self.rank() == 0) return bad_input(fmt::format("{} has no rows", describe(self)));
  FERRY_RETURN_IF_ERROR(resize(scales, row_shape(self)));
  FERRY_RETURN_IF_ERROR(resize(zero_points, row_shape(self)));
  if (self.numel == 0 && scales.numel > 0) {
    return bad_input(fmt::format("{} has rows without values", describe(self)));
  }
  for_rows(call, self, [&](int64_t row, int64_t begin, int64_t end) {
    const auto [scale, zero_point] = choose_encoding(self.as<float>() + begin, end - begin);
    scales.as<double>()[row] = scale;
    zero_points.as<int64_t>()[row] = zero_point;
  });
  return {};
}

}  // namespace ferry::kernels
