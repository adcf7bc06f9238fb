#include "graph/graph.h"

#include <algorithm>

#include <fmt/format.h>

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
  // The rows of 4-bit codes are whole bytes.
  return elements * static_cast<uint64_t>(dtype_bits(value.dtype)) / 8;
}

Literal zero_literal(uint64_t bytes) {
  return {.key = fmt::format("zeros:{}", bytes),
          .bytes = bytes,
          .fill = [](uint64_t, std::span<std::byte> out) { std::ranges::fill(out, std::byte{0}); }};
}

}  // namespace ferry::graph
