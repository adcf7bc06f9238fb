// Inference rules of quantization, with one scale for a whole tensor or for each row, and of
// operators on matrices of 4-bit and 8-bit codes.
#include <fmt/format.h>

#include <cmath>

#include "graph/dims.h"
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

// Returns the shape [...,1], which has one element for each row of x [...,D].
Dims rows_of(const Value& x) {
  Dims shape = x.shape;
  shape.back() = Dim(1).as(x.shape.back().axis);
  return shape;
}

// Checks arguments 1 to 4 of both operators on rows: scales, zero points, and the range of all i8
// codes.
Status check_rows(const RuleInput& in, const Value& x) {
  if (x.shape.empty()) return misfit("no rows");
  const Dims rows = rows_of(x);
  const Value& scales = in.tensor(1);
  if (scales.shape != rows || in.tensor(2).shape != rows) return misfit("not a scale for each row");
  if (scales.dtype != DType::kF64 && scales.dtype != DType::kF32) {
    return misfit("scales are f64 or f32");
  }
  // The official kernel reads zero points as i64 whatever their dtype is.
  if (in.tensor(2).dtype != DType::kI64) return misfit("zero points are i64");
  if (in.integer(3) != IntArg(-128) || in.integer(4) != IntArg(127) ||
      in.node.args[5] != Arg(DType::kI8)) {
    return misfit("codes are all of i8");
  }
  return {};
}

// XNNPACK requires groups of a multiple of this many elements.
constexpr int64_t kGroupUnit = 32;

Types one_tensor(DType dtype, Dims shape) {
  return {{Value::Kind::kTensor, dtype, std::move(shape)}};
}

// Returns how many columns of `codes` [N,K] share a scale of `scales` [N] or [N,G].
Result<int64_t> group_of(const Value& codes, const Value& scales) {
  if (codes.shape.size() != 2 || !is_static(codes.shape)) return misfit("codes are no matrix");
  const int64_t columns = codes.shape[1].base;
  if (!is_static(scales.shape) || scales.shape.empty() || scales.shape[0] != codes.shape[0]) {
    return misfit("not as many scales as rows");
  }
  if (scales.shape.size() == 1) return columns;
  if (scales.shape.size() != 2 || scales.shape[1].base < 1 || columns % scales.shape[1].base != 0) {
    return misfit("the groups do not divide a row");
  }
  return columns / scales.shape[1].base;
}

Result<ValueType> product(const Value& x, const Value& codes) {
  if (x.dtype != DType::kF32 || x.shape.size() < 2) return misfit("x is no f32 matrix");
  if (x.shape.back() != codes.shape[1]) return misfit("inner dimensions differ");
  if (!join(x.shape.back().axis, codes.shape[1].axis)) return misfit("inner axes differ");
  Dims shape = x.shape;
  shape.back() = codes.shape[0];
  return ValueType{Value::Kind::kTensor, DType::kF32, std::move(shape)};
}

Status check_delegated(const Value& codes, const Value& scales) {
  const int64_t group = FERRY_TRY(group_of(codes, scales));
  if (codes.dtype == DType::kI4) {
    if (scales.dtype != DType::kBF16) return misfit("scales of i4 are bf16");
    if (group % kGroupUnit != 0) return misfit("groups are a multiple of 32");
    return {};
  }
  if (codes.dtype != DType::kI8) return misfit("codes are i4 or i8");
  if (scales.dtype != DType::kF32) return misfit("scales of i8 are f32");
  if (group != codes.shape[1].base) return misfit("i8 has one scale for each row");
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

// Arguments: input, dtype. Results: scale, zero_point.
Result<Types> infer_choose_qparams(const RuleInput& in) {
  const Value& x = in.tensor(0);
  if (x.dtype != DType::kF32 || x.shape.empty()) return misfit("wants rows of f32");
  if (in.node.args[1] != Arg(DType::kI8)) return misfit("codes are i8");
  return Types{{Value::Kind::kTensor, DType::kF64, rows_of(x)},
               {Value::Kind::kTensor, DType::kI64, rows_of(x)}};
}

// Arguments: input, scales, zero_points, quant_min, quant_max, dtype.
Result<Types> infer_quantize_rows(const RuleInput& in) {
  const Value& x = in.tensor(0);
  if (x.dtype != DType::kF32) return misfit("wants f32");
  if (in.tensor(1).dtype != DType::kF64) return misfit("scales are f64");
  FERRY_RETURN_IF_ERROR(check_rows(in, x));
  return Types{{Value::Kind::kTensor, DType::kI8, x.shape}};
}

// Arguments: input, scales, zero_points, quant_min, quant_max, dtype, output_dtype.
Result<Types> infer_dequantize_rows(const RuleInput& in) {
  const Value& x = in.tensor(0);
  if (x.dtype != DType::kI8) return misfit("wants i8");
  FERRY_RETURN_IF_ERROR(check_rows(in, x));
  if (in.node.args[6] != Arg(DType::kF32)) return misfit("makes f32");
  return Types{{Value::Kind::kTensor, DType::kF32, x.shape}};
}

// Arguments: weight, scales, zero_points, quant_min, quant_max, indices, dtype.
Result<Types> infer_coded_embedding(const RuleInput& in) {
  const Value& table = in.tensor(0);
  const Value& indices = in.tensor(5);
  const bool nibbles = in.node.op == Op::kEmbedding4Bit;
  FERRY_TRY(group_of(table, in.tensor(1)));
  if (table.dtype != (nibbles ? DType::kI4 : DType::kI8)) return misfit("codes of another dtype");
  if (in.tensor(1).dtype != DType::kF32) return misfit("scales are f32");
  const int64_t least = nibbles ? -8 : -128;
  if (in.given(2) || in.integer(3) != IntArg(least) || in.integer(4) != IntArg(-least - 1)) {
    return misfit("all codes are used, and the zero point is 0");
  }
  if (indices.dtype != DType::kI64) return misfit("indices are i64");
  const auto* dtype = std::get_if<DType>(&in.node.args[6]);
  if (dtype == nullptr || *dtype != DType::kF32) return misfit("makes f32");
  Dims shape = indices.shape;
  shape.push_back(table.shape[1]);
  return one_tensor(DType::kF32, std::move(shape));
}

// Arguments: in, weight, scales, zero_points, dtype.
Result<Types> infer_mixed_linear(const RuleInput& in) {
  if (in.given(3) || in.given(4)) return misfit("the zero point is 0, the result as the input");
  FERRY_TRY(group_of(in.tensor(1), in.tensor(2)));
  if (in.tensor(1).dtype != DType::kI8 || in.tensor(2).dtype != DType::kF32) {
    return misfit("codes are i8 and scales f32");
  }
  if (in.tensor(0).shape.size() != 2) return misfit("wants two dimensions");
  return Types{FERRY_TRY(product(in.tensor(0), in.tensor(1)))};
}

// The type of x * blocks^T. Blocks are u8 [rows, bytes of a row].
Result<ValueType> block_product(const Value& x, const Value& blocks) {
  if (blocks.dtype != DType::kU8 || blocks.shape.size() != 2)
    return misfit("blocks are rows of u8");
  if (x.dtype != DType::kF32 || x.shape.size() < 2) return misfit("wants rows of f32");
  Dims shape = x.shape;
  shape.back() = blocks.shape[0];
  return ValueType{Value::Kind::kTensor, DType::kF32, std::move(shape)};
}

// Arguments: x, blocks, name of the encoding.
Result<Types> infer_block_linear(const RuleInput& in) {
  return Types{FERRY_TRY(block_product(in.tensor(0), in.tensor(1)))};
}

// Arguments: x, several blocks, names of their encodings with commas between.
Result<Types> infer_block_linears(const RuleInput& in) {
  Types types;
  for (const ValueId blocks : in.tensors(1)) {
    types.push_back(FERRY_TRY(block_product(in.tensor(0), in.graph[blocks])));
  }
  if (types.empty()) return misfit("no matrices");
  return types;
}

// Arguments: blocks, indices, columns, name of the encoding.
Result<Types> infer_block_embedding(const RuleInput& in) {
  const Value& blocks = in.tensor(0);
  const Value& indices = in.tensor(1);
  if (blocks.dtype != DType::kU8 || blocks.shape.size() != 2)
    return misfit("blocks are rows of u8");
  if (indices.dtype != DType::kI64 && indices.dtype != DType::kI32) {
    return misfit("indices are no integers");
  }
  Dims shape = indices.shape;
  shape.push_back(Dim(in.integer(2).number).as(Axis::kFeature));
  return Types{{Value::Kind::kTensor, DType::kF32, std::move(shape)}};
}

// Arguments: x, codes, scales.
Result<Types> infer_dynamic_linears(const RuleInput& in) {
  const std::vector<ValueId>& codes = in.tensors(1);
  const std::vector<ValueId>& scales = in.tensors(2);
  if (codes.empty() || codes.size() != scales.size()) return misfit("not scales for each matrix");
  Types types;
  for (size_t i = 0; i < codes.size(); ++i) {
    FERRY_RETURN_IF_ERROR(check_delegated(in.graph[codes[i]], in.graph[scales[i]]));
    types.push_back(FERRY_TRY(product(in.tensor(0), in.graph[codes[i]])));
  }
  return types;
}

}  // namespace ferry::graph
