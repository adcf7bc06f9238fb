// shard cuts a model into several between layers.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/text.h"
#include "formats/pte/operator_args.h"
#include "graph/graph.h"
#include "graph/passes/layer_partition.h"
#include "graph/passes/passes.h"

namespace ferry::graph {
namespace {

Failure unshardable(std::string message) {
  return fail(ErrorCode::kInternal, "shard: " + std::move(message));
}

// The properties of the whole graph that cutting needs.
struct Cut {
  const Graph& graph;
  std::vector<int32_t> bounds;     // first layer of each part, then the number of layers
  std::vector<int32_t> producers;  // node that makes each value, -1 for none
  std::vector<bool> read;          // whether a node reads each value

  int32_t parts() const { return static_cast<int32_t>(bounds.size()) - 1; }
  // Nodes before the first layer belong to the first layer, nodes after the last layer to the last.
  int32_t part_of(const Node& node) const {
    const int32_t layer = std::clamp(node.layer, 0, graph.num_layers - 1);
    return static_cast<int32_t>(std::ranges::upper_bound(bounds, layer) - bounds.begin()) - 1;
  }
  const Node& producer(ValueId id) const {
    return graph.nodes[static_cast<size_t>(producers[static_cast<size_t>(id.index)])];
  }
  int32_t order(ValueId id) const { return producers[static_cast<size_t>(id.index)]; }
};

Cut make_cut(const Graph& graph, const std::vector<int32_t>& bounds) {
  Cut cut{graph, bounds, {}, {}};
  cut.producers.assign(graph.values.size(), -1);
  cut.read.assign(graph.values.size(), false);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (ValueId id : used_values(graph.nodes[i])) cut.read[static_cast<size_t>(id.index)] = true;
    for (ValueId out : graph.nodes[i].outs) {
      if (graph[out].origin != Value::Origin::kNode) continue;
      cut.producers[static_cast<size_t>(out.index)] = static_cast<int32_t>(i);
    }
  }
  return cut;
}

// Returns whether `node` only converts an input of the program, such as a mask, to another dtype.
bool converts_input(const Cut& cut, const Node& node) {
  const bool casts = node.op == Op::kToCopy;
  if (!casts && node.op != Op::kDequantize) return false;
  const size_t from =
      casts ? size_t{pte::ops::ToCopy::kSelf} : size_t{pte::ops::DequantizePerTensor::kInput};
  return cut.graph[std::get<ValueId>(node.args[from])].origin == Value::Origin::kInput;
}

// Returns whether every part computes the value for itself instead of importing it.
bool is_recomputed(const Cut& cut, ValueId id) {
  const Value& value = cut.graph[id];
  const Node& producer = cut.producer(id);
  return value.kind == Value::Kind::kInt || value.shape.empty() || producer.op == Op::kView ||
         converts_input(cut, producer);
}

// Builds the graph of one part. `crossing` are the values of other parts that it takes as inputs. A
// builder that runs without `crossing` finds out which they are.
class PartBuilder {
 public:
  PartBuilder(const Cut& cut, int32_t part, const std::vector<ValueId>& crossing)
      : cut_(cut), part_(part) {
    out_.num_layers = cut.graph.num_layers;
    out_.literals = cut.graph.literals;
    for (const Symbol& symbol : cut.graph.symbols) {
      out_.symbols.push_back({symbol.name, symbol.max, ValueId{}, symbol.windows});
    }
    for (ValueId id : crossing) add_crossing(id);
  }

  Status run() {
    for (const Node& node : cut_.graph.nodes) {
      if (cut_.part_of(node) == part_) FERRY_RETURN_IF_ERROR(add_node(node));
    }
    return finish_inputs();
  }

  const std::vector<ValueId>& crossing() const { return crossing_; }
  const std::map<ValueId, ValueId>& mapped() const { return mapped_; }
  Graph& graph() { return out_; }

 private:
  ValueId add_value(ValueId old) {
    out_.values.push_back(cut_.graph[old]);
    const ValueId id{static_cast<int32_t>(out_.values.size()) - 1};
    mapped_[old] = id;
    return id;
  }

  void add_crossing(ValueId old) {
    const ValueId id = add_value(old);
    out_[id].origin = Value::Origin::kInput;
    out_.inputs.push_back(id);
    crossing_.push_back(old);
  }

  // Returns the value of this part that stands for `old`.
  Result<ValueId> import(ValueId old) {
    if (const auto known = mapped_.find(old); known != mapped_.end()) return known->second;
    if (cut_.graph[old].origin != Value::Origin::kNode) {
      add_value(old);
    } else if (const std::optional<ValueId> size = FERRY_TRY(import_size(old))) {
      mapped_[old] = *size;
    } else if (is_recomputed(cut_, old)) {
      FERRY_RETURN_IF_ERROR(add_node(cut_.producer(old)));
    } else if (cut_.part_of(cut_.producer(old)) < part_) {
      add_crossing(old);
    } else {
      return unshardable(fmt::format("%{} is used before the part that makes it", old.index));
    }
    return mapped_.at(old);
  }

  // Imports a size of a tensor as the size of any input of the part that has this dimension.
  // Returns nullopt if no input has it.
  Result<std::optional<ValueId>> import_size(ValueId old) {
    const Node& node = cut_.producer(old);
    if (node.op != Op::kSymSize || cut_.part_of(node) == part_) return std::nullopt;
    const Dims& shape = cut_.graph[std::get<ValueId>(node.args[pte::ops::SymSize::kSelf])].shape;
    const int64_t index = std::get<IntArg>(node.args[pte::ops::SymSize::kDim]).number;
    const int64_t rank = static_cast<int64_t>(shape.size());
    const Dim& dim = shape[static_cast<size_t>(index < 0 ? index + rank : index)];
    for (ValueId input : out_.inputs) {
      const Dims& dims = out_[input].shape;
      const auto found = std::ranges::find(dims, dim);
      if (found == dims.end()) continue;
      const IntArg at(found - dims.begin());
      const ValueId id = add_value(old);
      out_.nodes.push_back({Op::kSymSize, {input, at}, {id}, node.layer});
      return id;
    }
    return std::nullopt;
  }

  Status add_node(const Node& node) {
    if (node.outs.empty() || mapped_.contains(fresh_out(node))) return {};
    Node copy = node;
    Status status;
    visit_used_values(copy, [&](ValueId& id) {
      if (!status) return;
      Result<ValueId> imported = import(id);
      if (imported) {
        id = *imported;
      } else {
        status = Failure(imported.error());
      }
    });
    FERRY_RETURN_IF_ERROR(std::move(status));
    for (ValueId& out : copy.outs) {
      const auto known = mapped_.find(out);
      out = known != mapped_.end() ? known->second : add_value(out);
      FERRY_RETURN_IF_ERROR(import_symbols(out));
    }
    out_.nodes.push_back(std::move(copy));
    if (node.op == Op::kSymSize) take_size(out_.nodes.back());
    return {};
  }

  // The first size of a dimension that a part takes becomes the value of its symbol, so that later
  // ones are known to equal it.
  void take_size(const Node& node) {
    const Dims& shape = out_[std::get<ValueId>(node.args[pte::ops::SymSize::kSelf])].shape;
    const int64_t index = std::get<IntArg>(node.args[pte::ops::SymSize::kDim]).number;
    const int64_t rank = static_cast<int64_t>(shape.size());
    const Dim& dim = shape[static_cast<size_t>(index < 0 ? index + rank : index)];
    if (dim.is_static() || dim.scale != 1 || dim.base != 0) return;
    const auto symbol = static_cast<size_t>(dim.symbol);
    const ValueId old = cut_.graph.symbols[symbol].value;
    if (!old.valid() || mapped_.contains(old) || cut_.part_of(cut_.producer(old)) == part_) return;
    mapped_[old] = out_.symbols[symbol].value = node.outs[0];
  }

  // Returns an out that only this node makes, or an invalid id if the node writes buffers only.
  ValueId fresh_out(const Node& node) const {
    for (ValueId out : node.outs) {
      if (cut_.graph[out].origin == Value::Origin::kNode) return out;
    }
    return {};
  }

  // The values of the symbols in the shape of `id` must exist before the node that makes it.
  Status import_symbols(ValueId id) {
    for (const Dim& dim : Dims(out_[id].shape)) {
      if (dim.is_static()) continue;
      const size_t symbol = static_cast<size_t>(dim.symbol);
      const ValueId old = cut_.graph.symbols[symbol].value;
      if (!old.valid() || out_.symbols[symbol].value.valid()) continue;
      // A symbol may be bound to a value that its own part makes later.
      if (cut_.part_of(cut_.producer(old)) == part_ && !mapped_.contains(old)) continue;
      out_.symbols[symbol].value = FERRY_TRY(import(old));
    }
    return {};
  }

  // Values that no node makes or reads belong to the first part.
  Status import_unmade(ValueId old) {
    if (cut_.graph[old].origin != Value::Origin::kNode) FERRY_TRY(import(old));
    return {};
  }

  // Inputs of the part are the crossing values, then those inputs of the program that it reads, in
  // their order.
  Status finish_inputs() {
    for (ValueId old : cut_.graph.inputs) {
      if (part_ == 0 && !cut_.read[static_cast<size_t>(old.index)]) {
        FERRY_RETURN_IF_ERROR(import_unmade(old));
      }
      if (const auto known = mapped_.find(old); known != mapped_.end()) {
        out_.inputs.push_back(known->second);
      }
    }
    if (part_ == 0) {
      for (ValueId old : cut_.graph.outputs) FERRY_RETURN_IF_ERROR(import_unmade(old));
      for (const Probe& probe : cut_.graph.probes)
        FERRY_RETURN_IF_ERROR(import_unmade(probe.value));
    }
    for (size_t i = 0; i < out_.symbols.size(); ++i) {
      const auto known = mapped_.find(cut_.graph.symbols[i].value);
      if (known != mapped_.end()) out_.symbols[i].value = known->second;
    }
    return {};
  }

  const Cut& cut_;
  const int32_t part_;
  Graph out_;
  std::map<ValueId, ValueId> mapped_;  // value of the whole graph -> value of the part
  std::vector<ValueId> crossing_;
};

// Puts the hidden state, which is made last, first, then the others in order of their making.
void order_crossing(const Cut& cut, std::vector<ValueId>& crossing) {
  std::ranges::sort(crossing, {}, [&](ValueId id) { return cut.order(id); });
  if (!crossing.empty()) std::rotate(crossing.begin(), crossing.end() - 1, crossing.end());
}

// The last part that takes a value from the part that makes it.
using LastUses = std::map<ValueId, int32_t>;

// Returns names for inputs and outputs of parts. An input refers to the latest output of its name,
// so two values share a name only if the later one is made after the last use of the earlier one.
std::map<ValueId, std::string> port_names(const Cut& cut, const LastUses& last_uses) {
  std::vector<ValueId> ids;
  for (const auto& [id, last] : last_uses) ids.push_back(id);
  std::ranges::sort(ids, {}, [&](ValueId id) { return cut.order(id); });
  std::map<std::string, int32_t> taken_until;  // the last part that needs each name
  for (ValueId id : cut.graph.inputs) taken_until[cut.graph[id].name] = cut.parts();
  for (ValueId id : cut.graph.outputs) taken_until[cut.graph[id].name] = cut.parts();
  std::map<ValueId, std::string> names;
  std::map<int32_t, int32_t> unnamed;
  for (ValueId id : ids) {
    const int32_t part = cut.part_of(cut.producer(id));
    const bool is_output = std::ranges::count(cut.graph.outputs, id) > 0;
    std::string name = cut.graph[id].name;
    if (name.empty()) name = fmt::format("cut{}.{}", part, unnamed[part]++);
    const std::string base = name;
    for (int n = 2; !is_output && taken_until.contains(name) && taken_until[name] > part; ++n) {
      name = fmt::format("{}.{}", base, n);
    }
    taken_until[name] = last_uses.at(id);
    names[id] = name;
  }
  return names;
}

// The contents of a buffer are kept in one program.
Status check_buffers(const Cut& cut) {
  std::map<ValueId, int32_t> owners;
  for (const Node& node : cut.graph.nodes) {
    std::vector<ValueId> ids = used_values(node);
    ids.insert(ids.end(), node.outs.begin(), node.outs.end());
    for (ValueId id : ids) {
      if (cut.graph[id].origin != Value::Origin::kBuffer) continue;
      if (owners.emplace(id, cut.part_of(node)).first->second != cut.part_of(node)) {
        return unshardable(
            fmt::format("buffer {} is used in two parts", quoted(cut.graph[id].name)));
      }
    }
  }
  return {};
}

Result<StateDict> weights_of(const std::vector<MethodGraph>& methods, const StateDict& all) {
  std::set<std::string> used;
  for (const MethodGraph& method : methods) {
    for (const Value& value : method.graph.values) {
      if (value.origin == Value::Origin::kWeight) used.insert(value.name);
    }
  }
  StateDict dict;
  for (const Weight& weight : all.weights()) {
    if (used.contains(weight.name)) FERRY_RETURN_IF_ERROR(dict.add(weight));
  }
  return dict;
}

// Names the inputs and outputs of a built part, and declares its outputs and probes.
void add_ports(const Cut& cut, int32_t part, const std::map<ValueId, std::string>& names,
               PartBuilder& builder) {
  Graph& graph = builder.graph();
  const auto made_here = [&](ValueId id) {
    return cut.producers[static_cast<size_t>(id.index)] < 0 ? part == 0
                                                            : cut.part_of(cut.producer(id)) == part;
  };
  for (ValueId id : builder.crossing()) graph[builder.mapped().at(id)].name = names.at(id);
  std::vector<ValueId> sent;
  for (const auto& [id, name] : names) {
    if (made_here(id)) sent.push_back(id);
  }
  std::ranges::sort(sent, {}, [&](ValueId id) { return cut.order(id); });
  for (ValueId id : sent) {
    graph[builder.mapped().at(id)].name = names.at(id);
    graph.outputs.push_back(builder.mapped().at(id));
  }
  for (ValueId id : cut.graph.outputs) {
    if (made_here(id) && !names.contains(id)) graph.outputs.push_back(builder.mapped().at(id));
  }
  for (const Probe& probe : cut.graph.probes) {
    if (made_here(probe.value)) {
      graph.probes.push_back({probe.name, builder.mapped().at(probe.value)});
    }
  }
}

Result<std::vector<PartBuilder>> build_parts(const Cut& cut) {
  std::vector<PartBuilder> builders;
  for (int32_t part = 0; part < cut.parts(); ++part) {
    PartBuilder scout(cut, part, {});
    FERRY_RETURN_IF_ERROR(scout.run());
    std::vector<ValueId> crossing = scout.crossing();
    order_crossing(cut, crossing);
    builders.emplace_back(cut, part, crossing);
    FERRY_RETURN_IF_ERROR(builders.back().run());
  }
  return builders;
}

// Returns the graph of each part.
Result<std::vector<Graph>> cut_graph(const Graph& graph, const std::vector<int32_t>& bounds) {
  const Cut cut = make_cut(graph, bounds);
  FERRY_RETURN_IF_ERROR(check_buffers(cut));
  std::vector<PartBuilder> builders = FERRY_TRY(build_parts(cut));
  LastUses last_uses;
  for (int32_t part = 0; part < cut.parts(); ++part) {
    for (ValueId id : builders[static_cast<size_t>(part)].crossing()) last_uses[id] = part;
  }
  const std::map<ValueId, std::string> names = port_names(cut, last_uses);
  std::vector<Graph> graphs;
  for (int32_t part = 0; part < cut.parts(); ++part) {
    PartBuilder& builder = builders[static_cast<size_t>(part)];
    add_ports(cut, part, names, builder);
    graphs.push_back(remove_dead(std::move(builder.graph())));
    FERRY_RETURN_IF_ERROR(validate(graphs.back()));
  }
  return graphs;
}

// All methods are cut at the same layers, so a buffer that two of them share must be in one part.
Status check_shared_buffers(const std::vector<Model>& parts) {
  std::map<std::string, size_t> owners;
  for (size_t part = 0; part < parts.size(); ++part) {
    for (const MethodGraph& method : parts[part].methods) {
      for (const Value& value : method.graph.values) {
        if (value.origin != Value::Origin::kBuffer) continue;
        if (owners.emplace(value.name, part).first->second != part) {
          return unshardable(fmt::format("buffer {} is used in two parts", quoted(value.name)));
        }
      }
    }
  }
  return {};
}

}  // namespace

Result<std::vector<Model>> shard(const Model& model, int32_t count) {
  const std::vector<int32_t> bounds = FERRY_TRY(partition_model(model, count));
  if (count == 1) return std::vector<Model>{model};
  std::vector<Model> parts(static_cast<size_t>(count));
  for (const MethodGraph& method : model.methods) {
    std::vector<Graph> graphs = FERRY_TRY(cut_graph(method.graph, bounds));
    for (size_t part = 0; part < parts.size(); ++part) {
      parts[part].methods.push_back({method.name, std::move(graphs[part])});
    }
  }
  for (Model& part : parts) part.weights = FERRY_TRY(weights_of(part.methods, model.weights));
  FERRY_RETURN_IF_ERROR(check_shared_buffers(parts));
  return parts;
}

}  // namespace ferry::graph
