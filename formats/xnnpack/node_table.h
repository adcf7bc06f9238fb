// What each kind of node looks like. Not a public header.
#pragma once

#include <cstdint>
#include <string_view>

#include "formats/xnnpack/graph.h"

namespace ferry::xnnpack {

// The table that a node has on the wire (blob.fbs).
enum class Form : uint8_t {
  kAbsent,  // we neither read nor write it
  kUnary,
  kBinary,
  kFullyConnected,
  kConcatenate,
  kTranspose,
  kReshape,
  kSlice,
  kPad,
  kFactor,
};

struct NodeInfo {
  NodeKind kind;
  std::string_view name;
  Form form = Form::kAbsent;
  uint8_t inputs = 1;
  bool may_clamp = false;  // the runtime heeds the output range of these only
};

// nullptr for a code that is no kind.
const NodeInfo* find_node_info(NodeKind kind);

}  // namespace ferry::xnnpack
