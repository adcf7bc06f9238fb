// Graph is the program of a model before it becomes a .pte: a list of nodes in execution order over
// values that are named by integer id. Dynamic sizes are symbols. There is no control flow between
// nodes; routed experts are one node that becomes a loop when it is lowered (experts.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/dtype.h"
#include "core/encoding.h"
#include "core/result.h"
#include "graph/op.h"
#include "graph/recipe.h"

namespace ferry::graph {

// ValueId is an index into Graph::values.
struct ValueId {
  int32_t index = -1;
  bool operator==(const ValueId&) const = default;
  auto operator<=>(const ValueId&) const = default;
  bool valid() const { return index >= 0; }
};

// The meaning of a dimension of a tensor. Axes are set where shapes are made, and inference carries
// them, so that passes need not guess them from sizes.
enum class Axis : uint8_t {
  kNone,  // not named
  kBatch,
  kSequence,  // tokens of a call, or positions of a cache
  kHead,
  kHeadDim,  // elements of one head
  kFeature,  // elements of a hidden state or an MLP, or entries of the vocabulary
  kExpert,
};
// Returns names such as "head_dim" and "none".
std::string_view axis_name(Axis axis);

// A dimension is base + scale * symbol. A static dimension has no symbol (-1).
struct Dim {
  int64_t base = 0;
  int32_t symbol = -1;  // index into Graph::symbols
  int64_t scale = 0;
  Axis axis = Axis::kNone;
  Dim() = default;
  Dim(int64_t n) : base(n) {}  // NOLINT: a plain number is a dimension
  static Dim of(int32_t symbol, int64_t scale = 1, int64_t base = 0) {
    Dim d(base);
    d.symbol = symbol;
    d.scale = scale;
    return d;
  }
  Dim as(Axis name) const {
    Dim d = *this;
    d.axis = name;
    return d;
  }
  bool is_static() const { return symbol < 0; }
  // Compares sizes and ignores axes.
  bool operator==(const Dim& other) const {
    return base == other.base && symbol == other.symbol && scale == other.scale;
  }
};
using Dims = std::vector<Dim>;

// The windows of `size` elements, `step` apart, that fit into a dimension with `padding` elements
// on each side: what a convolution makes of it.
struct Windows {
  Dim of;
  int64_t size = 0, step = 0, padding = 0;
  bool operator==(const Windows&) const = default;
};

// A size known only at run time, such as the number of tokens T of a call.
struct Symbol {
  std::string name;
  int64_t max = 0;                      // upper bound; planned memory is sized by it
  ValueId value;                        // the Int value that holds it at run time
  std::optional<Windows> windows = {};  // the number of these windows
  bool operator==(const Symbol&) const = default;
};

// The contents of a literal, which are computed when they are written. They must be deterministic.
struct Literal {
  std::string key;  // equal keys mean equal bytes
  uint64_t bytes = 0;
  // Computes the bytes [offset, offset + out.size()). Tables of a long context are as large as
  // weights, and are written in tiles like weights.
  std::function<void(uint64_t offset, std::span<std::byte> out)> fill;
};
// Returns a literal of `bytes` zero bytes.
Literal zero_literal(uint64_t bytes);
// Returns a literal of the bytes of `values`.
template <class T>
Literal literal_of(std::string key, std::vector<T> values) {
  const uint64_t bytes = values.size() * sizeof(T);
  return {.key = std::move(key),
          .bytes = bytes,
          .fill = [values = std::move(values)](uint64_t offset, std::span<std::byte> out) {
            const auto all = std::as_bytes(std::span(values));
            std::memcpy(out.data(), all.data() + offset, out.size());
          }};
}

struct Value {
  enum class Kind { kTensor, kInt };  // kInt: a symbolic integer
  enum class Origin {
    kInput,    // input of the program
    kWeight,   // from the StateDict by name; external in the .ptd
    kLiteral,  // constant that Ferry makes (RoPE tables, scalars); inside the .pte
    kBuffer,   // mutable; keeps its contents between calls
    kNode,     // result of a node
  };
  Kind kind = Kind::kTensor;
  Origin origin = Origin::kNode;
  DType dtype = DType::kF32;
  Dims shape;
  std::string name;  // inputs, weights, buffers: unique; nodes: may be empty
  // index into Graph::literals (kLiteral; kBuffer with initial contents; factors)
  int32_t literal = -1;
  // kWeight: stays f32 whatever the dtype of the matrices is. Routers need this, because a rounded
  // score may pick another expert.
  bool keep_f32 = false;
  // kWeight: a factor of adapters (add_factors()). The model has no Weight of this name; files of
  // adapters give the contents, and `literal` those without such a file.
  bool is_factor = false;
  // kBuffer: the initial contents must be stored in every mode (positions and the like).
  bool must_store = false;
  // kBuffer: the initial contents are serialised. Set by the init_buffers pass.
  bool stored = false;
  // The meaning of the codes of inputs and outputs of u8 and u16, for the manifest.
  std::optional<Encoding> encoding = {};
};

// An integer argument is a number, or a symbolic Int value.
struct IntArg {
  int64_t number = 0;
  ValueId value;
  IntArg(int64_t n) : number(n) {}  // NOLINT
  IntArg(ValueId v) : value(v) {}   // NOLINT
  bool operator==(const IntArg&) const = default;
};
struct TensorListArg {
  std::vector<ValueId> items;
  bool operator==(const TensorListArg&) const = default;
};
// One argument of the operator's schema (outs excluded). monostate is None. A Scalar argument is an
// IntArg, double or bool; a ScalarType argument is a DType.
using Arg = std::variant<std::monostate, ValueId, IntArg, std::vector<IntArg>, TensorListArg,
                         double, bool, DType, std::string>;

struct Node {
  Op op;
  // All arguments of the schema in order, without outs, with explicit defaults. _to_copy has one
  // more, its target dtype, which the schema derives from the out; lowering drops it.
  std::vector<Arg> args;
  // Fresh values, or buffers that the node writes. aten::copy_ has the buffer that it writes here
  // and as its first argument. update_cache has a dummy here, and the cache among its arguments.
  std::vector<ValueId> outs;
  int32_t layer = -1;  // decoder layer; -1 before the first layer, num_layers after the last
};

// A value whose run-time contents prove parity. Probes are recorded in the manifest, and the runner
// copies the value right after the instruction that makes it.
struct Probe {
  std::string name;  // such as "hidden_states.3", as in reference files
  ValueId value;
};

struct Graph {
  std::vector<Value> values;
  std::vector<Node> nodes;
  std::vector<Symbol> symbols;
  std::vector<Literal> literals;
  std::vector<ValueId> inputs, outputs;
  std::vector<Probe> probes;
  int32_t num_layers = 0;

  const Value& operator[](ValueId id) const { return values[static_cast<size_t>(id.index)]; }
  Value& operator[](ValueId id) { return values[static_cast<size_t>(id.index)]; }
  // The functions below return the upper bounds of a dimension and of a tensor's bytes.
  int64_t max_of(const Dim& dim) const;
  uint64_t max_bytes(ValueId id) const;
};

// One method of a program: its name and its graph.
struct MethodGraph {
  std::string name;  // such as "forward"
  Graph graph;
};

// The methods of one program, and the sources of their weights. Weights and buffers are shared by
// name: a name means the same in every method. In a bound model every kWeight value has a Weight of
// its shape, except factors of adapters.
struct Model {
  std::vector<MethodGraph> methods;
  StateDict weights;
};

// Pairs the weights that `methods` use with those of `dict`. Reports all missing, unused and
// misshapen weights at once. A bound model is f32 throughout: recipes cast to the dtype of their
// value, which cast_weights may change.
Result<Model> bind(std::vector<MethodGraph> methods, StateDict dict,
                   const std::string& source_name);

// Checks that the methods of one program agree on the names that they share. Method names are
// unique. A name means the same in every method: equal dtype and shape of weights, also equal
// initial contents of buffers, equal sizes of literals with one key. Otherwise kInternal; the
// message names both methods.
Status check_shared_values(std::span<const MethodGraph> methods);

// Re-infers rank, dtype, shape and axes of every node's results, and checks that uses follow
// definitions and ids are in range. An invalid graph is a defect of Ferry, so errors are kInternal.
Status validate(const Graph& graph);

// Writes one line per value that no node makes, then one per node. The format is stable, because
// the tests of passes compare it.
//   %12 f32[1,T,64] = aten::mul.out(%3, %4)  # layer 0
std::string to_text(const Graph& graph);

// -- values among the arguments of a node: tensors, items of lists, symbolic integers

// Calls visit(id) with every value of the arguments in order, as a reference that may be assigned
// if `node` is not const.
template <class NodeType, class Visit>
requires std::is_same_v<std::remove_const_t<NodeType>, Node>
void visit_used_values(NodeType& node, const Visit& visit) {
  const auto visit_int = [&](auto& arg) {
    if (arg.value.valid()) visit(arg.value);
  };
  for (auto& arg : node.args) {
    if (auto* id = std::get_if<ValueId>(&arg)) visit(*id);
    if (auto* integer = std::get_if<IntArg>(&arg)) visit_int(*integer);
    if (auto* list = std::get_if<TensorListArg>(&arg)) {
      for (auto& id : list->items) visit(id);
    }
    if (auto* list = std::get_if<std::vector<IntArg>>(&arg)) {
      for (auto& item : *list) visit_int(item);
    }
  }
}

inline std::vector<ValueId> used_values(const Node& node) {
  std::vector<ValueId> ids;
  visit_used_values(node, [&](ValueId id) { ids.push_back(id); });
  return ids;
}

// Returns the buffers that `node` changes: outs, and arguments that its operator writes.
std::vector<ValueId> written_buffers(const Graph& graph, const Node& node);

}  // namespace ferry::graph
