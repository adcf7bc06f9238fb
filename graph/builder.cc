#include "graph/builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/checked.h"
#include "core/text.h"
#include "formats/pte/operator_args.h"
#include "graph/dims.h"
#include "graph/shape_inference.h"

namespace ferry::graph {
namespace {

// Returns the number of outs of a node whose types could not be inferred, so that building code can
// continue.
size_t out_count(Op op, const std::vector<Arg>& args) {
  if (op == Op::kGatedDeltaRule || op == Op::kTopk || op == Op::kExperts ||
      op == Op::kChooseQparams) {
    return 2;
  }
  if (op == Op::kLayerNorm) return 3;
  if (op != Op::kSplit || args.size() <= pte::ops::SplitWithSizes::kSplitSizes) return 1;
  const auto* sizes =
      std::get_if<std::vector<IntArg>>(&args[pte::ops::SplitWithSizes::kSplitSizes]);
  return sizes == nullptr ? 1 : sizes->size();
}

bool has_type(const Value& value, const ValueType& type) {
  return value.kind == type.kind && value.dtype == type.dtype && value.shape == type.shape &&
         carries_axes(value.shape, type.shape);
}

Value value_of(ValueType type) {
  Value value;
  value.kind = type.kind;
  value.dtype = type.dtype;
  value.shape = std::move(type.shape);
  return value;
}

std::vector<IntArg> int_args(const std::vector<int64_t>& numbers) {
  return {numbers.begin(), numbers.end()};
}

constexpr std::monostate kNone;

// Returns x, scale, zero_point, quant_min, quant_max, dtype. The range is all codes of the dtype.
std::vector<Arg> quantized(ValueId x, double scale, int64_t zero_point, DType dtype) {
  const CodeRange range = code_range(dtype);
  return {x, scale, IntArg(zero_point), IntArg(range.least), IntArg(range.greatest), dtype};
}

Arg optional_arg(std::optional<double> number) { return number ? Arg(*number) : Arg(kNone); }

}  // namespace

GraphBuilder::GraphBuilder(int32_t num_layers) { graph_.num_layers = num_layers; }

void GraphBuilder::misuse(std::string message) {
  if (error_.empty()) error_ = std::move(message);
}

// -- values

ValueId GraphBuilder::add_value(Value value) {
  graph_.values.push_back(std::move(value));
  return {static_cast<int32_t>(graph_.values.size()) - 1};
}

int32_t GraphBuilder::symbol(std::string name, int64_t max, ValueId int_value) {
  graph_.symbols.push_back({std::move(name), max, int_value});
  return static_cast<int32_t>(graph_.symbols.size()) - 1;
}

int32_t GraphBuilder::windows(std::string name, const Dim& of, int64_t size, int64_t step,
                              int64_t padding) {
  const int64_t most = (graph_.max_of(of) + 2 * padding - size) / step + 1;
  graph_.symbols.push_back({std::move(name), most, ValueId{}, Windows{of, size, step, padding}});
  return static_cast<int32_t>(graph_.symbols.size()) - 1;
}

void GraphBuilder::bind_symbol(int32_t symbol, ValueId int_value) {
  graph_.symbols[static_cast<size_t>(symbol)].value = int_value;
}

ValueId GraphBuilder::input(std::string name, DType dtype, Dims shape) {
  Value value = value_of({Value::Kind::kTensor, dtype, std::move(shape)});
  value.origin = Value::Origin::kInput;
  value.name = std::move(name);
  graph_.inputs.push_back(add_value(std::move(value)));
  return graph_.inputs.back();
}

ValueId GraphBuilder::weight(std::string name, Dims shape) {
  name.insert(0, weight_prefix_);
  if (const auto found = weights_.find(name); found != weights_.end()) {
    const Value& known = graph_[found->second];
    if (known.shape != shape || !axes_agree(known.shape, shape)) {
      misuse(fmt::format("weight {} has two shapes", quoted(name)));
    }
    return found->second;
  }
  Value value = value_of({Value::Kind::kTensor, DType::kF32, std::move(shape)});
  value.origin = Value::Origin::kWeight;
  value.name = name;
  return weights_[std::move(name)] = add_value(std::move(value));
}

ValueId GraphBuilder::weight_f32(std::string name, Dims shape) {
  const ValueId id = weight(std::move(name), std::move(shape));
  graph_[id].keep_f32 = true;
  return id;
}

ValueId GraphBuilder::buffer(std::string name, DType dtype, Dims shape) {
  Value value = value_of({Value::Kind::kTensor, dtype, std::move(shape)});
  value.origin = Value::Origin::kBuffer;
  value.name = std::move(name);
  return add_value(std::move(value));
}

ValueId GraphBuilder::literal(DType dtype, Dims shape, Literal literal) {
  const auto [found, is_new] = literals_.try_emplace(literal.key);
  LiteralValues& same = found->second;
  if (is_new) {
    same.index = static_cast<int32_t>(graph_.literals.size());
    graph_.literals.push_back(std::move(literal));
  }
  for (const ValueId id : same.values) {
    if (graph_[id].dtype == dtype && graph_[id].shape == shape) return id;
  }
  Value value = value_of({Value::Kind::kTensor, dtype, std::move(shape)});
  value.origin = Value::Origin::kLiteral;
  value.literal = same.index;
  return same.values.emplace_back(add_value(std::move(value)));
}

ValueId GraphBuilder::scalar(float number) {
  const auto bits = std::bit_cast<uint32_t>(number);
  return literal(DType::kF32, {},
                 {.key = fmt::format("f32:{:08x}", bits),
                  .bytes = sizeof(float),
                  .fill = [number](uint64_t offset, std::span<std::byte> out) {
                    const auto bytes = std::as_bytes(std::span(&number, 1));
                    std::ranges::copy(bytes.subspan(offset, out.size()), out.begin());
                  }});
}

void GraphBuilder::output(ValueId value, std::string name) {
  graph_.outputs.push_back(value);
  this->name(value, std::move(name));
}

void GraphBuilder::set_encoding(ValueId value, Encoding encoding) {
  if (value.valid()) graph_[value].encoding = encoding;
}

void GraphBuilder::name(ValueId value, std::string name) {
  if (!value.valid() || graph_[value].origin != Value::Origin::kNode) return;
  graph_[value].name = std::move(name);
}

void GraphBuilder::probe(std::string name, ValueId value) {
  graph_.probes.push_back({std::move(name), value});
}

void GraphBuilder::set_layer(int32_t layer) { layer_ = layer; }

// -- nodes

std::vector<ValueId> GraphBuilder::emit(Op op, std::vector<Arg> args) {
  std::vector<ValueId> outs(out_count(op, args));
  return emit_into(op, std::move(args), std::move(outs));
}

std::vector<ValueId> GraphBuilder::emit_into(Op op, std::vector<Arg> args,
                                             std::vector<ValueId> outs) {
  Node node{op, std::move(args), std::move(outs), layer_};
  Types types(node.outs.size(), {Value::Kind::kTensor, DType::kF32, {1}});
  if (error_.empty()) {
    Result<Types> inferred = infer_types(graph_, forms_, node);
    if (!inferred) {
      misuse(inferred.error().message);
    } else if (inferred->size() != node.outs.size()) {
      misuse(fmt::format("graph: {} has {} results", op_name(op), inferred->size()));
    } else {
      types = *std::move(inferred);
    }
  }
  for (size_t i = 0; i < types.size(); ++i) {
    ValueId& out = node.outs[i];
    if (!out.valid()) {
      out = add_value(value_of(std::move(types[i])));
    } else if (error_.empty() && !has_type(graph_[out], types[i])) {
      misuse(fmt::format("graph: {} makes {}, not {}", op_name(op),
                         to_text(graph_, types[i].dtype, types[i].shape),
                         quoted(graph_[out].name)));
    }
  }
  if (error_.empty()) forms_.define(graph_, node);
  graph_.nodes.push_back(node);
  return node.outs;
}

ValueId GraphBuilder::emit_one(Op op, std::vector<Arg> args) {
  return emit(op, std::move(args)).front();
}

// Returns a size as an argument: a number, or the Int value of a symbol, plus a constant if the
// size has one.
IntArg GraphBuilder::size_arg(const Dim& dim) {
  if (dim.is_static()) return dim.base;
  const ValueId value = graph_.symbols[static_cast<size_t>(dim.symbol)].value;
  if (dim.scale != 1 || !value.valid()) return -1;  // the operator computes this size
  return dim.base == 0 ? value : int_add(value, dim.base);
}

std::vector<IntArg> GraphBuilder::size_args(const Dims& shape) {
  std::vector<IntArg> args;
  for (const Dim& dim : shape) args.push_back(size_arg(dim));
  return args;
}

ValueId GraphBuilder::name_axes(ValueId value, const Dims& named) {
  if (!error_.empty()) return value;
  Dims& shape = graph_[value].shape;
  if (!axes_agree(shape, named)) {
    misuse(fmt::format("graph: {} is not {}", to_text(graph_, graph_[value].dtype, shape),
                       to_text(graph_, graph_[value].dtype, named)));
    return value;
  }
  for (size_t i = 0; i < shape.size(); ++i) {
    shape[i].axis = *join(shape[i].axis, named[i].axis);
  }
  return value;
}

ValueId GraphBuilder::expect_length(ValueId value, int64_t dim, const Dim& length) {
  if (!error_.empty()) return value;
  const Dims& shape = graph_[value].shape;
  const int64_t index = dim < 0 ? dim + static_cast<int64_t>(shape.size()) : dim;
  const Dim& found = shape[static_cast<size_t>(index)];
  if (found != length) {
    misuse(fmt::format("graph: the length is {}, not {}", to_text(graph_, found),
                       to_text(graph_, length)));
    return value;
  }
  Dims named(shape.size());
  named[static_cast<size_t>(index)].axis = length.axis;
  return name_axes(value, named);
}

ValueId GraphBuilder::embedding(ValueId table, ValueId ids) {
  return emit_one(Op::kEmbedding, {table, ids, IntArg(-1), false, false});
}
ValueId GraphBuilder::linear(ValueId x, ValueId w) { return emit_one(Op::kLinear, {x, w, kNone}); }
ValueId GraphBuilder::bmm(ValueId a, ValueId b) { return emit_one(Op::kBmm, {a, b}); }
ValueId GraphBuilder::add(ValueId a, ValueId b) { return emit_one(Op::kAdd, {a, b, IntArg(1)}); }
ValueId GraphBuilder::sub(ValueId a, ValueId b) { return emit_one(Op::kSub, {a, b, IntArg(1)}); }
ValueId GraphBuilder::mul(ValueId a, ValueId b) { return emit_one(Op::kMul, {a, b}); }
ValueId GraphBuilder::mul(ValueId a, double b) { return emit_one(Op::kMulScalar, {a, b}); }

ValueId GraphBuilder::div(ValueId a, ValueId b) { return emit_one(Op::kDiv, {a, b}); }

ValueId GraphBuilder::mean_last(ValueId x) {
  return emit_one(Op::kMean, {x, int_args({-1}), true, kNone});
}
ValueId GraphBuilder::sum_last(ValueId x) {
  return emit_one(Op::kSum, {x, int_args({-1}), true, kNone});
}
ValueId GraphBuilder::amin_last(ValueId x) {
  return emit_one(Op::kAmin, {x, int_args({-1}), true});
}
ValueId GraphBuilder::cumsum_last(ValueId x) {
  return emit_one(Op::kCumsum, {x, IntArg(-1), kNone});
}
ValueId GraphBuilder::rsqrt(ValueId x) { return emit_one(Op::kRsqrt, {x}); }
ValueId GraphBuilder::cos(ValueId x) { return emit_one(Op::kCos, {x}); }
ValueId GraphBuilder::sin(ValueId x) { return emit_one(Op::kSin, {x}); }
ValueId GraphBuilder::sigmoid(ValueId x) { return emit_one(Op::kSigmoid, {x}); }
ValueId GraphBuilder::exp(ValueId x) { return emit_one(Op::kExp, {x}); }
ValueId GraphBuilder::log1p(ValueId x) { return emit_one(Op::kLog1p, {x}); }
ValueId GraphBuilder::tanh(ValueId x) { return emit_one(Op::kTanh, {x}); }
ValueId GraphBuilder::gelu(ValueId x, std::string approximate) {
  return emit_one(Op::kGelu, {x, std::move(approximate)});
}
ValueId GraphBuilder::relu(ValueId x) { return emit_one(Op::kRelu, {x}); }
ValueId GraphBuilder::clamp(ValueId x, double low, double high) {
  return emit_one(Op::kClamp, {x, low, high});
}
ValueId GraphBuilder::clamp(ValueId x, ValueId low, ValueId high) {
  return emit_one(Op::kClampTensor, {x, low, high});
}
ValueId GraphBuilder::softmax_last(ValueId x) {
  return emit_one(Op::kSoftmax, {x, IntArg(-1), false});
}
std::pair<ValueId, ValueId> GraphBuilder::topk_last(ValueId x, int64_t k) {
  const auto outs = emit(Op::kTopk, {x, IntArg(k), IntArg(-1), true, true});
  return {outs[0], outs[1]};
}
ValueId GraphBuilder::gather_last(ValueId x, ValueId index) {
  return emit_one(Op::kGather, {x, IntArg(-1), index, false});
}
ValueId GraphBuilder::experts(ValueId x, ValueId ids, ValueId scores, ValueId w1, ValueId w3,
                              ValueId w2, const ExpertBiases& biases, std::string activation) {
  const Arg up = w3.valid() ? Arg(w3) : Arg(kNone);
  std::vector<Arg> args = {x, ids, scores, w1, up, w2, kNone, kNone, kNone};
  for (ValueId bias : {biases.b1, biases.b3, biases.b2}) {
    args.push_back(bias.valid() ? Arg(bias) : Arg(kNone));
  }
  args.insert(args.end(), {biases.steepness, biases.limit, std::string(), std::string(),
                           std::string(), std::move(activation)});
  return emit_one(Op::kExperts, std::move(args));
}

ValueId GraphBuilder::where(ValueId condition, ValueId a, ValueId b) {
  return emit_one(Op::kWhere, {condition, a, b});
}
ValueId GraphBuilder::cat(std::vector<ValueId> parts, int64_t dim) {
  return emit_one(Op::kCat, {TensorListArg{std::move(parts)}, IntArg(dim)});
}
ValueId GraphBuilder::slice(ValueId x, int64_t dim, IntArg start, IntArg end) {
  return emit_one(Op::kSlice, {x, IntArg(dim), start, end, IntArg(1)});
}
ValueId GraphBuilder::slice(ValueId x, int64_t dim, IntArg start, IntArg end, Dim length) {
  return expect_length(slice(x, dim, start, end), dim, length);
}
ValueId GraphBuilder::slice_into(ValueId buffer, ValueId x, int64_t dim, int64_t start,
                                 int64_t end) {
  return emit_into(Op::kSlice, {x, IntArg(dim), IntArg(start), IntArg(end), IntArg(1)}, {buffer})
      .front();
}
void GraphBuilder::copy_into(ValueId buffer, ValueId source) {
  emit_into(Op::kCopy, {buffer, source, false}, {buffer});
}
ValueId GraphBuilder::select(ValueId x, int64_t dim, int64_t index) {
  return emit_one(Op::kSelect, {x, IntArg(dim), IntArg(index)});
}
ValueId GraphBuilder::permute(ValueId x, const std::vector<int64_t>& dims) {
  return emit_one(Op::kPermute, {x, int_args(dims)});
}
ValueId GraphBuilder::unsqueeze(ValueId x, int64_t dim) {
  return emit_one(Op::kUnsqueeze, {x, IntArg(dim)});
}
ValueId GraphBuilder::expand(ValueId x, const Dims& shape) {
  const ValueId wide = emit_one(Op::kExpand, {x, size_args(shape), false});
  return name_axes(wide, shape);
}
ValueId GraphBuilder::expand_to(ValueId x, const std::vector<IntArg>& sizes) {
  return emit_one(Op::kExpand, {x, sizes, false});
}
ValueId GraphBuilder::view(ValueId x, const Dims& shape) {
  const ValueId out = emit_one(Op::kView, {x, size_args(shape)});
  return name_axes(out, shape);
}
std::vector<ValueId> GraphBuilder::split(ValueId x, const std::vector<int64_t>& sizes,
                                         int64_t dim) {
  return emit(Op::kSplit, {x, int_args(sizes), IntArg(dim)});
}
ValueId GraphBuilder::to(ValueId x, DType dtype) {
  return emit_one(Op::kToCopy, {x, false, kNone, dtype});
}

ValueId GraphBuilder::sym_size(ValueId x, int64_t dim) {
  return emit_one(Op::kSymSize, {x, IntArg(dim)});
}
ValueId GraphBuilder::item(ValueId x) { return emit_one(Op::kLocalScalar, {x}); }
ValueId GraphBuilder::int_add(IntArg a, IntArg b) { return emit_one(Op::kIntAdd, {a, b}); }
ValueId GraphBuilder::int_sub(IntArg a, IntArg b) { return emit_one(Op::kIntSub, {a, b}); }
ValueId GraphBuilder::int_max(IntArg a, IntArg b) { return emit_one(Op::kIntMax, {a, b}); }

ValueId GraphBuilder::eq(ValueId x, int64_t number) {
  return emit_one(Op::kEqScalar, {x, IntArg(number)});
}
ValueId GraphBuilder::gt(ValueId x, double number) { return emit_one(Op::kGtScalar, {x, number}); }
ValueId GraphBuilder::ge(ValueId x, int64_t number) {
  return emit_one(Op::kGeScalar, {x, IntArg(number)});
}
ValueId GraphBuilder::lt(ValueId x, int64_t number) {
  return emit_one(Op::kLtScalar, {x, IntArg(number)});
}
ValueId GraphBuilder::logical_and(ValueId a, ValueId b) {
  return emit_one(Op::kLogicalAnd, {a, b});
}
ValueId GraphBuilder::logical_or(ValueId a, ValueId b) { return emit_one(Op::kLogicalOr, {a, b}); }
ValueId GraphBuilder::remainder(ValueId x, int64_t divisor) {
  return emit_one(Op::kRemainder, {x, IntArg(divisor)});
}
ValueId GraphBuilder::arange(IntArg start, IntArg end, Dim length) {
  return expect_length(emit_one(Op::kArange, {start, end, IntArg(1)}), 0, length);
}

ValueId GraphBuilder::layer_norm(ValueId x, ValueId weight, ValueId bias, double eps) {
  const Dims& shape = graph_[x].shape;
  const int64_t width = shape.empty() ? 0 : shape.back().base;
  const auto given = [](ValueId value) -> Arg { return value.valid() ? Arg(value) : Arg(kNone); };
  return emit_one(Op::kLayerNorm, {x, int_args({width}), given(weight), given(bias), eps});
}

ValueId GraphBuilder::depthwise_conv1d(ValueId x, ValueId w) {
  const Dims& shape = graph_[w].shape;
  const int64_t channels = shape.empty() ? 0 : shape[0].base;
  return emit_one(Op::kConvolution, {x, w, kNone, int_args({1}), int_args({0}), int_args({1}),
                                     false, int_args({0}), IntArg(channels)});
}

ValueId GraphBuilder::conv(ValueId x, ValueId w, ValueId bias, const Steps& steps) {
  const Arg added = bias.valid() ? Arg(bias) : Arg(kNone);
  const size_t spatial = graph_[w].shape.size() == 4 ? 2 : 1;
  const auto each = [&](int64_t n) { return std::vector<IntArg>(spatial, IntArg(n)); };
  std::vector<IntArg> strides = each(steps.step), paddings = each(steps.padding);
  if (spatial == 2) strides.back() = IntArg(steps.last_step.value_or(steps.step));
  if (spatial == 2) paddings.back() = IntArg(steps.last_padding.value_or(steps.padding));
  return emit_one(Op::kConvolution, {x, w, added, std::move(strides), std::move(paddings), each(1),
                                     false, each(0), IntArg(steps.groups)});
}

ValueId GraphBuilder::quantize(ValueId x, double scale, int64_t zero_point, DType dtype) {
  return emit_one(Op::kQuantize, quantized(x, scale, zero_point, dtype));
}
ValueId GraphBuilder::dequantize(ValueId x, double scale, int64_t zero_point) {
  const bool known = x.valid() && static_cast<size_t>(x.index) < graph_.values.size();
  const DType codes = known ? graph_[x].dtype : DType::kU8;
  std::vector<Arg> args = quantized(x, scale, zero_point, codes);
  args.emplace_back(DType::kF32);
  return emit_one(Op::kDequantize, std::move(args));
}

CodedRows GraphBuilder::quantize_rows(ValueId x) {
  const std::vector<ValueId> chosen = emit(Op::kChooseQparams, {x, DType::kI8});
  const ValueId scales = chosen.front(), zero_points = chosen.back();
  CodedRows rows;
  rows.codes =
      emit_one(Op::kQuantizeRows, {x, scales, zero_points, IntArg(-128), IntArg(127), DType::kI8});
  rows.scales = to_dtype(scales, DType::kF32);
  rows.zero_points = to_dtype(zero_points, DType::kI8);
  return rows;
}
ValueId GraphBuilder::dequantize_rows(const CodedRows& rows) {
  const ValueId zero_points = to_dtype(rows.zero_points, DType::kI64);
  return emit_one(Op::kDequantizeRows, {rows.codes, rows.scales, zero_points, IntArg(-128),
                                        IntArg(127), DType::kI8, DType::kF32});
}
ValueId GraphBuilder::to_dtype(ValueId x, DType dtype) {
  return emit_one(Op::kToCopy, {x, false, kNone, dtype});
}

// -- llama::

ValueId GraphBuilder::fallback(ValueId x) { return emit_one(Op::kFallback, {x}); }
void GraphBuilder::update_cache(ValueId value, ValueId cache, IntArg start_pos) {
  emit(Op::kUpdateCache, {value, cache, start_pos});
}
void GraphBuilder::update_cache_rows(ValueId value, ValueId cache, IntArg start_pos,
                                     ValueId indices) {
  emit(Op::kUpdateCacheRows, {value, cache, start_pos, indices});
}
ValueId GraphBuilder::sdpa(ValueId query, ValueId keys, ValueId values, IntArg start_pos,
                           std::optional<double> scale) {
  return emit_one(Op::kSdpa,
                  {query, keys, values, start_pos, kNone, 0.0, true, optional_arg(scale)});
}
ValueId GraphBuilder::sdpa_full(ValueId query, ValueId keys, ValueId values,
                                std::optional<double> scale, IntArg start_pos) {
  return emit_one(Op::kSdpa,
                  {query, keys, values, start_pos, kNone, 0.0, false, optional_arg(scale)});
}
ValueId GraphBuilder::sdpa_masked(ValueId query, ValueId keys, ValueId values, ValueId mask,
                                  std::optional<double> scale) {
  return emit_one(Op::kSdpa,
                  {query, keys, values, IntArg(0), mask, 0.0, false, optional_arg(scale)});
}
std::pair<ValueId, ValueId> GraphBuilder::gated_delta_rule(ValueId query, ValueId key,
                                                           ValueId value, ValueId decay,
                                                           ValueId beta, ValueId state,
                                                           ValueId final_state) {
  const std::vector<ValueId> outs = emit_into(
      Op::kGatedDeltaRule, {query, key, value, decay, beta, state}, {ValueId{}, final_state});
  return {outs.front(), outs.back()};
}

Result<Graph> GraphBuilder::finish() {
  if (!error_.empty()) return fail(ErrorCode::kInternal, error_);
  FERRY_RETURN_IF_ERROR(validate(graph_));
  return std::move(graph_);
}

}  // namespace ferry::graph
