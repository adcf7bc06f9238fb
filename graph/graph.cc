#include "graph/graph.h"

#include <fmt/format.h>

#include <algorithm>

#include "graph/shape_inference.h"

namespace ferry::graph {

std::string_view axis_name(Axis axis) {
  switch (axis) {
    case Axis::kNone:
      return "none";
    case Axis::kBatch:
      return "batch";
    case Axis::kSequence:
      return "sequence";
    case Axis::kHead:
      return "head";
    case Axis::kHeadDim:
      return "head_dim";
    case Axis::kFeature:
      return "feature";
    case Axis::kExpert:
      return "expert";
  }
  return "none";
}

int64_t Graph::max_of(const Dim& dim) const {
  if (dim.is_static()) return dim.base;
  return dim.base + dim.scale * symbols[static_cast<size_t>(dim.symbol)].max;
}

uint64_t Graph::max_bytes(ValueId id) const {
  const Value& value = (*this)[id];
  uint64_t elements = 1;
  for (const Dim& dim : value.shape) elements *= static_cast<uint64_t>(max_of(dim));
  // Rows of 4-bit codes fill whole bytes.
  return elements * static_cast<uint64_t>(dtype_bits(value.dtype)) / 8;
}

Literal zero_literal(uint64_t bytes) {
  return {.key = fmt::format("zeros:{}", bytes),
          .bytes = bytes,
          .fill = [](uint64_t, std::span<std::byte> out) { std::ranges::fill(out, std::byte{0}); }};
}

std::vector<ValueId> written_buffers(const Graph& graph, const Node& node) {
  std::vector<ValueId> ids;
  const pte::OpSchema* schema = op_schema(node.op);
  for (size_t i = 0; i < schema->args.size() && i < node.args.size(); ++i) {
    const auto* id = std::get_if<ValueId>(&node.args[i]);
    if (schema->args[i].mutated && id != nullptr) ids.push_back(*id);
  }
  for (ValueId out : node.outs) {
    const bool known = !ids.empty() && ids.front() == out;  // copy_ names its buffer twice
    if (!known && graph[out].origin == Value::Origin::kBuffer) ids.push_back(out);
  }
  return ids;
}

}  // namespace ferry::graph
