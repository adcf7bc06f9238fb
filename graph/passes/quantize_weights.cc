#include "graph/passes/quantize_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "core/checked.h"
#include "core/derived_source.h"
#include "core/text.h"
#include "formats/pte/operator_args.h"
#include "graph/dims.h"
#include "graph/dynamic_linears.h"
#include "graph/experts.h"
#include "graph/graph.h"
#include "graph/passes/passes.h"
#include "graph/shape_inference.h"

namespace ferry::graph {
namespace {

using Kind = LinearQuantization::Kind;

enum class Use { kLinear, kEmbedding, kExperts };

// The quantisation of a matrix.
struct Decision {
  Use use = Use::kLinear;
  LinearQuantization linear = {};        // for kLinear and kExperts
  EmbeddingQuantization embedding = {};  // for kEmbedding
  bool is_kept = false;                  // whether the codes are those of the checkpoint
};
using Decisions = std::map<std::string, Decision, std::less<>>;

std::string embedding_name(const EmbeddingQuantization& embedding) {
  return "embedding " + name_of(embedding);
}

// Finds, by name, the weights that every method uses only as matrices of one kind of node.
class QuantizableFinder {
 public:
  explicit QuantizableFinder(const std::vector<MethodGraph>& methods) {
    for (const MethodGraph& method : methods) {
      for (const Node& node : method.graph.nodes) add(method.graph, node);
    }
    for (const std::string& name : others_) uses_.erase(name);
  }
  std::map<std::string, Use> take() { return std::move(uses_); }

 private:
  static std::optional<Use> use_of(Op op, size_t arg) {
    if (op == Op::kLinear && arg == pte::ops::Linear::kWeight) return Use::kLinear;
    if (op == Op::kEmbedding && arg == pte::ops::Embedding::kWeight) return Use::kEmbedding;
    if (op == Op::kExperts && ExpertsArgs::is_matrix(arg)) return Use::kExperts;
    return std::nullopt;
  }
  void add(const Graph& graph, const Node& node) {
    for (size_t i = 0; i < node.args.size(); ++i) {
      if (const auto* id = std::get_if<ValueId>(&node.args[i])) {
        add(graph[*id], use_of(node.op, i));
      } else if (const auto* list = std::get_if<TensorListArg>(&node.args[i])) {
        for (ValueId item : list->items) add(graph[item], std::nullopt);
      }
    }
  }
  void add(const Value& value, std::optional<Use> use) {
    if (value.origin != Value::Origin::kWeight) return;
    if (!use || value.keep_f32) {
      others_.insert(value.name);
    } else if (uses_.try_emplace(value.name, *use).first->second != *use) {
      others_.insert(value.name);
    }
  }

  std::map<std::string, Use> uses_;
  std::set<std::string> others_;
};

// XNNPACK wants groups of 4-bit codes of a multiple of this; two codes of an embedding are a byte.
constexpr int64_t kLinearMultiple = 32, kEmbeddingMultiple = 2;

// Returns the largest group, `group` at most, that divides `columns` and is a multiple of
// `multiple`; 0 if there is none.
int64_t fitting_group(int64_t group, int64_t columns, int64_t multiple) {
  int64_t size = std::min(group, columns);
  size -= size % multiple;
  while (size > 0 && columns % size != 0) size -= multiple;
  return size;
}

// Chooses the quantisation of every matrix.
class Chooser {
 public:
  Chooser(const QuantizeOptions& options, const StateDict& weights, const TensorSource& source)
      : options_(options), weights_(weights), source_(source) {}

  Result<Decisions> run(const std::map<std::string, Use>& uses) {
    for (const auto& [name, use] : uses) FERRY_RETURN_IF_ERROR(choose(name, use));
    return std::move(decisions_);
  }
  KeptCodes kept() const { return kept_; }
  std::vector<size_t> used_rules() const { return {used_rules_.begin(), used_rules_.end()}; }
  ReplacedSchemes take_replaced() { return std::move(replaced_); }

 private:
  Status choose(const std::string& name, Use use) {
    Decision decision{.use = use};
    if (use == Use::kEmbedding) {
      decision.embedding = options_.embeddings;
      if (decision.embedding.bits == 0) return {};
      fit(decision.embedding, columns_of(name));
    } else {
      decision.linear = linear_of(name);
      if (decision.linear.kind == Kind::kKeep) FERRY_RETURN_IF_ERROR(keep(name, decision));
      if (decision.linear.kind == Kind::kNone) return {};
      if (!decision.is_kept) fit(decision.linear, columns_of(name));
    }
    decisions_.emplace(name, decision);
    return {};
  }

  // Chooses the kind that can hold the codes of the checkpoint, or else another one.
  Status keep(const std::string& name, Decision& decision) {
    const Recipe& recipe = weights_.find(name)->recipe;
    const int64_t columns = columns_of(name);
    const auto stored = FERRY_TRY(recipe.stored_codes(source_));
    const bool four = stored && stored->bits == 4 && stored->group % kLinearMultiple == 0;
    if (four || (stored && stored->bits == 8 && stored->group == columns)) {
      decision.linear =
          four ? LinearQuantization{Kind::k8da4w, stored->group} : LinearQuantization{Kind::k8da8w};
      decision.is_kept = true;
      ++kept_.matrices;
      if (four && decision.use == Use::kLinear && !has_bf16_scales(recipe)) ++kept_.rounded;
      return {};
    }
    Recipe blocks = recipe;
    const bool is_linear = decision.use == Use::kLinear;
    if (is_linear && blocks.split_q8_0(source_, name)) {
      decision.linear = {Kind::kInt8};
      ++kept_.matrices;
      return {};
    }
    const double bits = stored_bits(recipe);
    if (bits == 0) {
      decision.linear = {};
      ++kept_.plain;
      return {};
    }
    constexpr double kMostOfFour = 5;
    decision.linear =
        bits < kMostOfFour ? LinearQuantization{Kind::k8da4w} : LinearQuantization{Kind::k8da8w};
    ++kept_.requantised[name_of(decision.linear)];
    return {};
  }

  // Whether the stored scales of all pieces are bf16.
  bool has_bf16_scales(const Recipe& recipe) const {
    return std::ranges::all_of(recipe.pieces, [&](const StridedPiece& piece) {
      const auto parts = parts_of(source_, piece.tensor);  // codes, then scales
      return parts.size() > 1 && source_.entries()[parts[1]].dtype == DType::kBF16;
    });
  }

  // How many bits an element takes in the checkpoint; 0 for a matrix that is not quantised.
  double stored_bits(const Recipe& recipe) const {
    double most = 0;
    for (const StridedPiece& piece : recipe.pieces) {
      const TensorEntry& entry = source_.entries()[piece.tensor];
      uint64_t bytes = entry.encoding == nullptr ? 0 : entry.bytes;
      for (const size_t part : parts_of(source_, piece.tensor)) {
        bytes += source_.entries()[part].stored_bytes();
      }
      const int64_t elements = checked_numel(entry.shape).value_or(0);
      if (elements > 0) {
        most = std::max(most, 8 * static_cast<double>(bytes) / static_cast<double>(elements));
      }
    }
    return most;
  }

  LinearQuantization linear_of(const std::string& name) {
    LinearQuantization linear = options_.linears;
    for (size_t i = 0; i < options_.rules.size(); ++i) {
      if (!matches(options_.rules[i].pattern, name)) continue;
      linear = options_.rules[i].linear;
      used_rules_.insert(i);
    }
    return linear;
  }

  int64_t columns_of(const std::string& name) const {
    return weights_.find(name)->recipe.output().shape.back();
  }

  void fit(LinearQuantization& linear, int64_t columns) {
    if (linear.kind != Kind::k8da4w || columns % linear.group == 0) return;
    const int64_t group = fitting_group(linear.group, columns, kLinearMultiple);
    const LinearQuantization fitted =
        group == 0 ? LinearQuantization{Kind::k8da8w} : LinearQuantization{Kind::k8da4w, group};
    ++replaced_[name_of(linear)][name_of(fitted)];
    linear = fitted;
  }

  void fit(EmbeddingQuantization& embedding, int64_t columns) {
    if (embedding.group == 0 || columns % embedding.group == 0) return;
    const int64_t group = fitting_group(embedding.group, columns, kEmbeddingMultiple);
    const EmbeddingQuantization fitted =
        group == 0 ? EmbeddingQuantization{8, 0} : EmbeddingQuantization{embedding.bits, group};
    ++replaced_[embedding_name(embedding)][embedding_name(fitted)];
    embedding = fitted;
  }

  const QuantizeOptions& options_;
  const StateDict& weights_;
  const TensorSource& source_;
  KeptCodes kept_;
  Decisions decisions_;
  std::set<size_t> used_rules_;
  ReplacedSchemes replaced_;
};

// Returns the stored form of a decision.
QuantizationScheme scheme_of(const Decision& decision, ScaleMethod method) {
  QuantizationScheme scheme{.method = method};
  const bool table = decision.use != Use::kLinear;
  const bool four = decision.use == Use::kEmbedding ? decision.embedding.bits == 4
                                                    : decision.linear.kind == Kind::k8da4w;
  scheme.bits = four ? 4 : 8;
  if (decision.use == Use::kEmbedding) scheme.group = decision.embedding.group;
  if (decision.use != Use::kEmbedding && four) scheme.group = decision.linear.group;
  // Operators that read tables require f32 scales and the other order of nibbles.
  scheme.scale_dtype = four && !table ? DType::kBF16 : DType::kF32;
  scheme.order = four && table ? NibbleOrder::kHighFirst : NibbleOrder::kLowFirst;
  return scheme;
}

// Returns whether the program reads codes and scales in the form of blocks of Q8_0.
bool reads_blocks(const Decision& decision) {
  if (decision.use == Use::kEmbedding) return decision.embedding.bits == 8;
  return decision.linear.kind == Kind::kInt8;
}

// A matrix that the checkpoint stores in Q8_0 keeps its codes and scales if the program can read
// them.
Status quantize_recipe(Recipe& recipe, const std::string& name, const Decision& decision,
                       ScaleMethod method, const TensorSource& source) {
  if (reads_blocks(decision)) {
    Recipe split = recipe;
    if (split.split_q8_0(source, name)) {
      recipe = std::move(split);
      return {};
    }
  }
  const QuantizationScheme scheme = scheme_of(decision, method);
  return decision.is_kept ? recipe.keep_codes(scheme, name) : recipe.quantize(scheme, name);
}

Status quantize_recipes(Model& model, const Decisions& decisions, ScaleMethod method,
                        const TensorSource& source) {
  for (const auto& [name, decision] : decisions) {
    Recipe& recipe = model.weights.find(name)->recipe;
    Shape& shape = recipe.output().shape;
    if (decision.use == Use::kExperts) shape = {shape[0] * shape[1], shape[2]};
    FERRY_RETURN_IF_ERROR(quantize_recipe(recipe, name, decision, method, source));
  }
  return {};
}

// Rewrites the nodes of one method.
class Rewriter {
 public:
  Rewriter(Graph& graph, const StateDict& weights, const Decisions& decisions)
      : graph_(graph), weights_(weights), decisions_(decisions) {}

  void run() {
    for (Node& node : std::exchange(graph_.nodes, {})) {
      if (!written_buffers(graph_, node).empty()) joinable_.clear();
      rewrite(std::move(node));
    }
  }

 private:
  const Decision* decision_of(ValueId id) const {
    const Value& value = graph_[id];
    if (value.origin != Value::Origin::kWeight) return nullptr;
    const auto found = decisions_.find(value.name);
    return found == decisions_.end() ? nullptr : &found->second;
  }

  void rewrite(Node node) {
    if (node.op == Op::kLinear) {
      const auto matrix = std::get<ValueId>(node.args[pte::ops::Linear::kWeight]);
      const Decision* decision = decision_of(matrix);
      if (decision != nullptr && decision->linear.kind == Kind::kInt8) {
        return mixed_linear(std::move(node), matrix);
      }
      if (decision != nullptr) return dynamic_linear(std::move(node), matrix);
    }
    if (node.op == Op::kEmbedding) {
      const auto table = std::get<ValueId>(node.args[pte::ops::Embedding::kWeight]);
      if (decision_of(table) != nullptr) return embedding(std::move(node), table);
    }
    if (node.op == Op::kExperts) quantize_experts(node);
    graph_.nodes.push_back(std::move(node));
  }

  // Gives the value of the weight the dtype and shape of its codes. Returns the value of the
  // scales.
  ValueId coded(ValueId matrix) {
    const Weight& weight = *weights_.find(graph_[matrix].name);
    const Recipe& recipe = weight.recipe;
    const auto known = scales_.find(matrix);
    if (known != scales_.end()) return known->second;
    Value& codes = graph_[matrix];
    codes.dtype = recipe.outputs[0].dtype;
    if (codes.shape.size() != recipe.outputs[0].shape.size()) {
      codes.shape = {codes.shape[0].base * codes.shape[1].base, codes.shape[2]};
    }
    Value scales;
    scales.origin = Value::Origin::kWeight;
    scales.dtype = recipe.outputs[1].dtype;
    scales.name = key_of(weight, 1);
    for (const int64_t size : recipe.outputs[1].shape) scales.shape.emplace_back(size);
    return scales_[matrix] = add(std::move(scales));
  }

  ValueId add(Value value) {
    graph_.values.push_back(std::move(value));
    return {static_cast<int32_t>(graph_.values.size()) - 1};
  }

  void dynamic_linear(Node node, ValueId matrix) {
    const auto x = std::get<ValueId>(node.args[pte::ops::Linear::kInput]);
    const ValueId scales = coded(matrix);
    const auto [known, fresh] = joinable_.try_emplace({x, node.layer}, graph_.nodes.size());
    if (fresh) {
      graph_.nodes.push_back({Op::kDynamicLinears,
                              {x, TensorListArg{{matrix}}, TensorListArg{{scales}}},
                              {node.outs[0]},
                              node.layer});
      return;
    }
    Node& joined = graph_.nodes[known->second];
    std::get<TensorListArg>(joined.args[DynamicLinearsArgs::kCodes]).items.push_back(matrix);
    std::get<TensorListArg>(joined.args[DynamicLinearsArgs::kScales]).items.push_back(scales);
    joined.outs.push_back(node.outs[0]);
  }

  // The operator takes and makes tensors of two dimensions.
  void mixed_linear(Node node, ValueId matrix) {
    const ValueId scales = coded(matrix);
    auto x = std::get<ValueId>(node.args[pte::ops::Linear::kInput]);
    const ValueId result = node.outs[0];
    const Dims wide = graph_[result].shape;
    if (wide.size() == 2) {
      graph_.nodes.push_back(product(x, matrix, scales, result, node.layer));
      return;
    }
    x = reshaped(x, node.layer);
    Value flat;
    flat.shape = {wide[wide.size() - 2], wide.back()};
    const ValueId rows = add(std::move(flat));
    graph_.nodes.push_back(product(x, matrix, scales, rows, node.layer));
    graph_.nodes.push_back({Op::kUnsqueeze, {rows, IntArg(0)}, {result}, node.layer});
  }

  static Node product(ValueId x, ValueId matrix, ValueId scales, ValueId out, int32_t layer) {
    return {
        Op::kMixedLinear, {x, matrix, scales, std::monostate{}, std::monostate{}}, {out}, layer};
  }

  // Reshapes [1,T,K] to [T,K].
  ValueId reshaped(ValueId x, int32_t layer) {
    const auto known = flat_.find(x);
    if (known != flat_.end()) return known->second;
    const Dims& shape = graph_[x].shape;
    Value flat;
    flat.shape = {shape[1], shape[2]};
    const ValueId out = add(std::move(flat));
    graph_.nodes.push_back({Op::kSelect, {x, IntArg(0), IntArg(0)}, {out}, layer});
    return flat_[x] = out;
  }

  // The official kernel of embedding_byte reads i64, but static programs have tokens of i32.
  ValueId long_ids(ValueId ids, int32_t layer) {
    if (graph_[ids].dtype == DType::kI64) return ids;
    Value cast;
    cast.dtype = DType::kI64;
    cast.shape = graph_[ids].shape;
    const ValueId out = add(std::move(cast));
    graph_.nodes.push_back(
        {Op::kToCopy, {ids, false, std::monostate{}, DType::kI64}, {out}, layer});
    return out;
  }

  void embedding(Node node, ValueId table) {
    const ValueId scales = coded(table);
    const bool nibbles = graph_[table].dtype == DType::kI4;
    const int64_t least = nibbles ? -8 : -128;
    const ValueId ids =
        long_ids(std::get<ValueId>(node.args[pte::ops::Embedding::kIndices]), node.layer);
    node.args = {table, scales,     std::monostate{}, IntArg(least), IntArg(-least - 1),
                 ids,   DType::kF32};
    node.op = nibbles ? Op::kEmbedding4Bit : Op::kEmbeddingByte;
    graph_.nodes.push_back(std::move(node));
  }

  // The scratch size of the loop's body changes.
  void quantize_experts(Node& node) {
    for (size_t i = 0; ExpertsArgs::is_matrix(ExpertsArgs::kW1 + i); ++i) {
      const auto* matrix = std::get_if<ValueId>(&node.args[ExpertsArgs::kW1 + i]);
      if (matrix == nullptr || decision_of(*matrix) == nullptr) continue;
      const ValueId scales = coded(*matrix);
      node.args[ExpertsArgs::kS1 + i] = scales;
    }
    const Result<Types> types = infer_types(graph_, {}, node);
    // otherwise validate() reports the error
    if (types) graph_[node.outs[1]].shape = (*types)[1].shape;
  }

  Graph& graph_;
  const StateDict& weights_;
  const Decisions& decisions_;
  std::map<ValueId, ValueId> scales_;  // by matrix
  std::map<ValueId, ValueId> flat_;
  // The node that further products of an activation join, by activation and layer. A node that
  // writes a buffer ends the joining, because the activation may be a view of the buffer.
  std::map<std::pair<ValueId, int32_t>, size_t> joinable_;  // index into nodes
};

std::string summary_of(const Decisions& decisions) {
  std::map<std::string, int> counts;
  for (const auto& [name, decision] : decisions) {
    ++counts[decision.use == Use::kEmbedding ? embedding_name(decision.embedding)
                                             : name_of(decision.linear)];
  }
  std::string out;
  for (const auto& [scheme, count] : counts) {
    out += fmt::format("{}{} x {}", out.empty() ? "" : ", ", scheme, count);
  }
  return out;
}

}  // namespace

std::string name_of(const LinearQuantization& linear) {
  switch (linear.kind) {
    case Kind::k8da4w:
      return fmt::format("8da4w-g{}", linear.group);
    case Kind::k8da8w:
      return "8da8w";
    case Kind::kInt8:
      return "int8";
    case Kind::kKeep:
      return "keep";
    case Kind::kNone:
      break;
  }
  return "none";
}

std::string name_of(const EmbeddingQuantization& embedding) {
  if (embedding.bits == 0) return "none";
  if (embedding.group == 0) return fmt::format("{}", embedding.bits);
  return fmt::format("{},{}", embedding.bits, embedding.group);
}

bool matches(const std::string& pattern, std::string_view name) {
  if (glob_match(pattern, name)) return true;
  return name.ends_with(".weight") &&
         glob_match(pattern, name.substr(0, name.size() - std::string_view(".weight").size()));
}

QuantizationScheme scheme_of(const LinearQuantization& linear, ScaleMethod method) {
  return scheme_of(Decision{.linear = linear}, method);
}
QuantizationScheme scheme_of_experts(const LinearQuantization& linear) {
  return scheme_of(Decision{.use = Use::kExperts, .linear = linear}, ScaleMethod::kBf16First);
}

bool QuantizeOptions::quantizes() const {
  return linears.kind != Kind::kNone || embeddings.bits != 0 || !rules.empty();
}

Result<QuantizedModel> quantize_weights(Model model, const QuantizeOptions& options,
                                        const TensorSource& source) {
  Chooser chooser(options, model.weights, source);
  const Decisions decisions = FERRY_TRY(chooser.run(QuantizableFinder(model.methods).take()));
  FERRY_RETURN_IF_ERROR(quantize_recipes(model, decisions, options.method, source));
  for (MethodGraph& method : model.methods) {
    Rewriter(method.graph, model.weights, decisions).run();
    method.graph = remove_dead(std::move(method.graph));
    FERRY_RETURN_IF_ERROR(validate(method.graph));
  }
  return QuantizedModel{std::move(model), summary_of(decisions), chooser.used_rules(),
                        chooser.take_replaced(), chooser.kept()};
}

}  // namespace ferry::graph
