// Inference rules of quantization, one scale for the whole tensor.
#include <fmt/format.h>

#include <cmath>

#include "graph/shape_inference.h"

namespace ferry::graph {
namespace {

// Arguments 1 to 5 of both operators: scale, zero_point, quant_min, quant_max, dtype.
Result<DType> encoding_of(const RuleInput& in) {
  const auto* dtype = std::get_if<DType>(&in.node.args[5]);
  if (dtype == nullptr) return misfit("the dtype of the codes is absent");
  const CodeRange range = code_range(*dtype);
  if (range.greatest < range.least) return misfit("codes are u8, i8, u16 or i16");
  if (in.integer(3) != IntArg(range.least) || in.integer(4) != IntArg(range.greatest)) {
    return misfit(fmt::format("codes are all of {}", dtype_name(*dtype)));
  }
  const IntArg& zero_point = in.integer(2);
  if (zero_point.value.valid() || zero_point.number < range.least ||
      zero_point.number > range.greatest) {
    return misfit(fmt::format("the zero point is no code of {}", dtype_name(*dtype)));
  }
  const auto scale = static_cast<float>(std::get<double>(in.node.args[1]));
  if (!std::isnormal(scale) || scale < 0 || !std::isfinite(1 / scale)) {
    return misfit("the scale is not positive");
  }
  return *dtype;
}

}  // namespace

CodeRange code_range(DType dtype) {
  switch (dtype) {
    case DType::kU8:
      return {0, 255};
    case DType::kI8:
      return {-128, 127};
    case DType::kU16:
      return {0, 65535};
    case DType::kI16:
      return {-32768, 32767};
    default:
      return {};
  }
}

Result<Types> infer_quantize(const RuleInput& in) {
  const Value& x = in.tensor(0);
  const DType codes = FERRY_TRY(encoding_of(in));
  if (!is_castable(x.dtype)) return misfit("wants f32, f16 or bf16");
  return Types{{Value::Kind::kTensor, codes, x.shape}};
}

// The last argument is the dtype of the result.
Result<Types> infer_dequantize(const RuleInput& in) {
  const Value& x = in.tensor(0);
  const DType codes = FERRY_TRY(encoding_of(in));
  if (x.dtype != codes) return misfit("codes are of another dtype");
  const auto* dtype = std::get_if<DType>(&in.node.args[6]);
  if (dtype == nullptr || !is_castable(*dtype)) return misfit("makes f32, f16 or bf16");
  return Types{{Value::Kind::kTensor, *dtype, x.shape}};
}

}  // namespace ferry::graph
