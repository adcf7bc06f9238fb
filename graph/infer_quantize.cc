// Inference rules of quantization: one scale for the whole tensor, and one for each row.
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

// Of x [...,D]: one for each row.
Dims rows_of(const Value& x) {
  Dims shape = x.shape;
  shape.back() = Dim(1).as(x.shape.back().axis);
  return shape;
}

// Arguments 1 to 4 of both operators on rows: scales, zero points, and all the codes of i8.
Status check_rows(const RuleInput& in, const Value& x) {
  if (x.shape.empty()) return misfit("no rows");
  const Dims rows = rows_of(x);
  const Value& scales = in.tensor(1);
  if (scales.shape != rows || in.tensor(2).shape != rows) return misfit("not a scale for each row");
  if (scales.dtype != DType::kF64 && scales.dtype != DType::kF32) {
    return misfit("scales are f64 or f32");
  }
  // The official kernel reads them as i64 whatever they are.
  if (in.tensor(2).dtype != DType::kI64) return misfit("zero points are i64");
  if (in.integer(3) != IntArg(-128) || in.integer(4) != IntArg(127) ||
      in.node.args[5] != Arg(DType::kI8)) {
    return misfit("codes are all of i8");
  }
  return {};
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

// input, dtype -> scale, zero_point
Result<Types> infer_choose_qparams(const RuleInput& in) {
  const Value& x = in.tensor(0);
  if (x.dtype != DType::kF32 || x.shape.empty()) return misfit("wants rows of f32");
  if (in.node.args[1] != Arg(DType::kI8)) return misfit("codes are i8");
  return Types{{Value::Kind::kTensor, DType::kF64, rows_of(x)},
               {Value::Kind::kTensor, DType::kI64, rows_of(x)}};
}

// input, scales, zero_points, quant_min, quant_max, dtype
Result<Types> infer_quantize_rows(const RuleInput& in) {
  const Value& x = in.tensor(0);
  if (x.dtype != DType::kF32) return misfit("wants f32");
  if (in.tensor(1).dtype != DType::kF64) return misfit("scales are f64");
  FERRY_RETURN_IF_ERROR(check_rows(in, x));
  return Types{{Value::Kind::kTensor, DType::kI8, x.shape}};
}

// input, scales, zero_points, quant_min, quant_max, dtype, output_dtype
Result<Types> infer_dequantize_rows(const RuleInput& in) {
  const Value& x = in.tensor(0);
  if (x.dtype != DType::kI8) return misfit("wants i8");
  FERRY_RETURN_IF_ERROR(check_rows(in, x));
  if (in.node.args[6] != Arg(DType::kF32)) return misfit("makes f32");
  return Types{{Value::Kind::kTensor, DType::kF32, x.shape}};
}

}  // namespace ferry::graph
