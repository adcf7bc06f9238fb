// The properties of each kind of node. Private to formats/xnnpack.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/xnnpack/graph.h"

namespace ferry::xnnpack {

// The table that a node has on the wire (blob.fbs).
enum class Form : uint8_t {
  kAbsent,  // neither read nor written by Ferry
  kUnary,
  kBinary,
  kFullyConnected,
  kConcatenate,
  kTranspose,
  kReshape,
  kSlice,
  kPad,
  kConvolution,
  kPooling,
  kResize,
  kFactor,
};

struct NodeInfo {
  NodeKind kind;
  std::string_view name;
  Form form = Form::kAbsent;
  uint8_t inputs = 1;
  bool may_clamp = false;  // the runtime applies the output range of these kinds only
};

// Returns nullptr for an unknown code.
const NodeInfo* find_node_info(NodeKind kind);

}  // namespace ferry::xnnpack
