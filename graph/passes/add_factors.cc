#include "graph/passes/add_factors.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/text.h"
#include "formats/pte/operator_args.h"
#include "graph/dims.h"
#include "graph/recipe.h"
#include "graph/shape_inference.h"

namespace ferry::graph {
namespace {

constexpr std::string_view kParameter = ".weight", kScale = "_scale";
constexpr std::string_view kOfLinear = ".lora", kOfTable = ".lora_embedding";

// The position of the matrix among the arguments of a node that takes factors.
std::optional<size_t> factored_arg(Op op, bool is_table) {
  if (op == Op::kLinear && !is_table) return pte::ops::Linear::kWeight;
  if (op == Op::kEmbedding && is_table) return pte::ops::Embedding::kWeight;
  return std::nullopt;
}

// The literal whose f32 values are all the same.
Literal repeated(const char* key, float value, uint64_t bytes) {
  return {.key = fmt::format("{}:{}", key, bytes),
          .bytes = bytes,
          .fill = [value](uint64_t offset, std::span<std::byte> out) {
            const auto one = std::as_bytes(std::span(&value, 1));
            for (size_t i = 0; i < out.size(); ++i) out[i] = one[(offset + i) % one.size()];
          }};
}

std::string_view module_of(const FactorSlot& slot) {
  std::string_view module = slot.weight;
  if (module.ends_with(kParameter)) module.remove_suffix(kParameter.size());
  return module;
}

Literal given_literal(const std::string& name, std::span<const std::byte> bytes) {
  return {.key = "factor:" + name,
          .bytes = bytes.size(),
          .fill = [bytes](uint64_t offset, std::span<std::byte> out) {
            std::ranges::copy(bytes.subspan(offset, out.size()), out.begin());
          }};
}

// Adds the nodes to one method.
class FactorAdder {
 public:
  FactorAdder(Graph& graph, const std::map<std::string, const FactorSlot*>& linears,
              const std::map<std::string, const FactorSlot*>& tables, const FactorSlots& slots)
      : graph_(graph), linears_(linears), tables_(tables), slots_(slots) {}

  Status run() {
    for (Node& node : std::exchange(graph_.nodes, {})) {
      const FactorSlot* slot = FERRY_TRY(slot_of(node));
      if (slot == nullptr) {
        graph_.nodes.push_back(std::move(node));
      } else {
        FERRY_RETURN_IF_ERROR(add(std::move(node), *slot));
      }
    }
    return {};
  }

 private:
  struct Factors {
    ValueId a, b, scale, gain, a_scales, b_scales;
  };
  bool has_codes() const { return slots_.dtype == DType::kI8; }

  const FactorSlot* find(const std::map<std::string, const FactorSlot*>& slots, ValueId id) const {
    const Value& value = graph_[id];
    if (value.origin != Value::Origin::kWeight) return nullptr;
    const auto found = slots.find(value.name);
    return found == slots.end() ? nullptr : found->second;
  }

  // Returns nullptr for a node without factors.
  Result<const FactorSlot*> slot_of(const Node& node) const {
    const FactorSlot* slot = nullptr;
    for (size_t i = 0; i < node.args.size(); ++i) {
      const auto* id = std::get_if<ValueId>(&node.args[i]);
      if (id == nullptr) continue;
      if (factored_arg(node.op, /*is_table=*/false) == i) {
        slot = find(linears_, *id);
      } else if (factored_arg(node.op, /*is_table=*/true) == i) {
        slot = find(tables_, *id);
      } else if (const FactorSlot* other = find(linears_, *id)) {
        return fail(ErrorCode::kUnsupported,
                    fmt::format("{} takes no factors of an adapter: {} reads it too",
                                quoted(other->weight), op_info(node.op).name));
      }
    }
    return slot;
  }

  ValueId add_value(Value value) {
    graph_.values.push_back(std::move(value));
    return {static_cast<int32_t>(graph_.values.size()) - 1};
  }

  int32_t literal_index(Literal literal) {
    const auto known = std::ranges::find(graph_.literals, literal.key, &Literal::key);
    const auto index = static_cast<int32_t>(known - graph_.literals.begin());
    if (known == graph_.literals.end()) graph_.literals.push_back(std::move(literal));
    return index;
  }

  // `without` is the literal with the contents without an adapter; nullopt for zeros.
  ValueId factor(const std::string& name, DType dtype, Dims shape,
                 std::optional<Literal> without = {}) {
    Value value;
    value.origin = Value::Origin::kWeight;
    value.dtype = dtype;
    value.shape = std::move(shape);
    value.name = name;
    value.keep_f32 = value.is_factor = true;
    const ValueId id = add_value(std::move(value));
    const auto given = slots_.contents.find(name);
    if (given != slots_.contents.end()) {
      without = given_literal(name, given->second);
    } else if (!without) {
      without = zero_literal(graph_.max_bytes(id));
    }
    graph_[id].literal = literal_index(*std::move(without));
    return id;
  }

  // A factor in f32 whose values are all `value` without an adapter.
  ValueId filled(const std::string& name, Dims shape, const char* key, float value) {
    const auto bytes = static_cast<uint64_t>(dim_min(shape[0])) * sizeof(float);
    return factor(name, DType::kF32, std::move(shape), repeated(key, value, bytes));
  }

  Factors factors_of(const FactorSlot& slot, ValueId matrix) {
    const auto known = known_.find(&slot);
    if (known != known_.end()) return known->second;
    const FactorNames names = factor_names(slot);
    const Dims shape = graph_[matrix].shape;  // [out,in], or [entries,out]
    const Dim rank(slot.rank);
    Factors made;
    made.a =
        factor(names.a, slots_.dtype, slot.is_table ? Dims{shape[0], rank} : Dims{rank, shape[1]});
    const Dim outputs = shape[slot.is_table ? 1 : 0];
    made.b = factor(names.b, slots_.dtype, {outputs, rank});
    if (has_codes()) {
      const Dims rows = slot.is_table ? Dims{shape[0], Dim(1)} : Dims{rank};
      made.a_scales = filled(names.a_scales, rows, "no scales", 1);
      made.b_scales = filled(names.b_scales, {outputs}, "no scales", 1);
    }
    made.scale =
        factor(names.scale, DType::kF32, {1}, repeated("no scale", kNoScale, sizeof kNoScale));
    if (slot.has_gain) made.gain = filled(names.gain, {outputs}, "no gain", kNoGain);
    return known_[&slot] = made;
  }

  Result<ValueId> emit(Op op, std::vector<Arg> args, int32_t layer) {
    Node node{op, std::move(args), {}, layer};
    const Types types = FERRY_TRY(infer_types(graph_, forms_, node));
    Value value;
    value.dtype = types[0].dtype;
    value.shape = types[0].shape;
    const ValueId out = add_value(std::move(value));
    node.outs = {out};
    graph_.nodes.push_back(std::move(node));
    return out;
  }

  Result<ValueId> in_f32(ValueId value, int32_t layer) {
    if (graph_[value].dtype == DType::kF32) return value;
    return emit(Op::kToCopy, {value, false, std::monostate{}, DType::kF32}, layer);
  }

  // `scales` are those of the codes of a row of the matrix, if it has codes.
  Result<ValueId> linear(ValueId x, ValueId matrix, ValueId scales, int32_t layer) {
    const ValueId wide = FERRY_TRY(in_f32(matrix, layer));
    const ValueId out = FERRY_TRY(emit(Op::kLinear, {x, wide, std::monostate{}}, layer));
    if (!has_codes()) return out;
    return emit(Op::kMul, {out, scales}, layer);
  }

  // The rows of the table A that `args`, those of the embedding node, look up.
  Result<ValueId> looked_up(std::vector<Arg> args, const Factors& factors, int32_t layer) {
    args[pte::ops::Embedding::kWeight] = factors.a;
    const ValueId rows = FERRY_TRY(emit(Op::kEmbedding, args, layer));
    const ValueId wide = FERRY_TRY(in_f32(rows, layer));
    if (!has_codes()) return wide;
    args[pte::ops::Embedding::kWeight] = factors.a_scales;
    const ValueId scales = FERRY_TRY(emit(Op::kEmbedding, std::move(args), layer));
    return emit(Op::kMul, {wide, scales}, layer);
  }

  // The result keeps its value, so that probes, outputs and readers stay unchanged.
  Status add(Node node, const FactorSlot& slot) {
    const size_t at = *factored_arg(node.op, slot.is_table);
    const Factors factors = factors_of(slot, std::get<ValueId>(node.args[at]));
    const ValueId result = node.outs[0];
    const int32_t layer = node.layer;
    Value plain;
    plain.dtype = graph_[result].dtype;
    plain.shape = graph_[result].shape;
    node.outs[0] = add_value(std::move(plain));
    const ValueId base = node.outs[0];
    const std::vector<Arg> args = node.args;
    graph_.nodes.push_back(std::move(node));
    const ValueId narrow = slot.is_table
                               ? FERRY_TRY(looked_up(args, factors, layer))
                               : FERRY_TRY(linear(std::get<ValueId>(args[pte::ops::Linear::kInput]),
                                                  factors.a, factors.a_scales, layer));
    const ValueId product = FERRY_TRY(linear(narrow, factors.b, factors.b_scales, layer));
    const ValueId change = FERRY_TRY(emit(Op::kMul, {product, factors.scale}, layer));
    if (!slot.has_gain) {
      graph_.nodes.push_back({Op::kAdd, {base, change, IntArg(1)}, {result}, layer});
      return {};
    }
    const ValueId sum = FERRY_TRY(emit(Op::kAdd, {base, change, IntArg(1)}, layer));
    graph_.nodes.push_back({Op::kMul, {sum, factors.gain}, {result}, layer});
    return {};
  }

  Graph& graph_;
  const std::map<std::string, const FactorSlot*>&linears_, &tables_;
  const FactorSlots& slots_;
  IntForms forms_;
  std::map<const FactorSlot*, Factors> known_;
};

}  // namespace

FactorNames factor_names(const FactorSlot& slot) {
  const std::string_view module = module_of(slot), kind = slot.is_table ? kOfTable : kOfLinear;
  const std::string a = fmt::format("{}{}_a.weight", module, kind),
                    b = fmt::format("{}{}_b.weight", module, kind);
  return {a,
          b,
          fmt::format("{}{}{}", module, kind, kScale),
          fmt::format("{}{}_gain", module, kind),
          fmt::format("{}.{}", a, kScalesOutput),
          fmt::format("{}.{}", b, kScalesOutput)};
}

std::optional<FactorSlot> slot_of_scale(std::string_view name) {
  for (const std::string_view kind : {kOfTable, kOfLinear}) {
    const std::string end = fmt::format("{}{}", kind, kScale);
    if (!name.ends_with(end)) continue;
    name.remove_suffix(end.size());
    return FactorSlot{fmt::format("{}{}", name, kParameter), kind == kOfTable};
  }
  return std::nullopt;
}

Result<Model> add_factors(Model model, const FactorSlots& slots) {
  std::map<std::string, const FactorSlot*> linears, tables;
  for (const FactorSlot& slot : slots.slots) {
    (slot.is_table ? tables : linears).emplace(slot.weight, &slot);
  }
  for (MethodGraph& method : model.methods) {
    FERRY_RETURN_IF_ERROR(FactorAdder(method.graph, linears, tables, slots).run());
    FERRY_RETURN_IF_ERROR(validate(method.graph));
  }
  return model;
}

}  // namespace ferry::graph
