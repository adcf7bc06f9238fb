// The rules of all kinds of nodes. node_check.h is what others include; the rules of images have a
// file of their own, node_check_images.cc.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "formats/xnnpack/graph.h"
#include "formats/xnnpack/node_check.h"
#include "formats/xnnpack/node_table.h"

namespace ferry::xnnpack {

using Dims = std::vector<uint32_t>;

bool is_float(Datatype datatype);
// Whether elements of the datatype can be computed one by one.
bool is_elementwise(Datatype datatype);

// Checks the nodes of a graph in their order. The functions below run() check the node at index_.
class NodeCheck {
 public:
  NodeCheck(const Graph& graph, const ValueTable& values, const std::string& file)
      : graph_(graph), values_(values), file_(file) {
    for (const Value& value : graph.values) has_source_.push_back(value.is_input || value.constant);
  }

  Status run();

 private:
  Failure error(const std::string& what, ErrorCode code = ErrorCode::kBadInput) const {
    return fail(code,
                fmt::format("{}: node {} ({}): {}", file_, index_, node_name(node().kind), what));
  }
  Failure unsupported(const std::string& what) const {
    return error(what, ErrorCode::kUnsupported);
  }

  const Node& node() const { return graph_.nodes[index_]; }
  const Value& input(size_t i) const { return graph_.values[values_.find(node().inputs[i])]; }
  const Value& output() const { return graph_.values[values_.find(node().outputs[0])]; }

  Status check_node();
  uint32_t known_flags(Form form) const;
  Status check_sources(const NodeInfo& info);
  Status check_range(const NodeInfo& info) const;
  Status check_factors(const NodeInfo& info) const;
  Status check_form(const NodeInfo& info) const;

  // -- what rules have in common
  Status expect_numbers(size_t count) const;
  Status expect_output(const Dims& dims) const;
  Status expect_one_datatype() const;
  Status expect_same_elements() const;

  // -- elements
  Status check_unary() const;
  Status check_binary() const;
  Status check_convert() const;

  // -- matrices
  Status check_product() const;
  Status check_fully_connected() const;
  Status check_weights() const;
  static bool is_supported_product(Datatype rows, Datatype filter, Datatype out);
  Status check_bias(uint64_t rows) const;
  Status check_slopes() const;

  // -- moves
  Status check_concatenate() const;
  Status check_transpose() const;
  Status check_reshape() const;
  Status check_slice() const;
  Status check_pad() const;

  // -- images: node_check_images.cc
  Status expect_image(const Value& value) const;
  Result<Dims> windowed(uint64_t channels) const;
  Status check_window(size_t count) const;
  Status check_convolution() const;
  static bool is_supported_convolution(Datatype image, Datatype filter, Datatype out);
  Status check_pooling() const;
  Status check_global_pooling() const;
  Status check_resize() const;

  const Graph& graph_;
  const ValueTable& values_;
  const std::string& file_;
  std::vector<bool> has_source_;  // for each value, whether a source precedes the current node
  size_t index_ = 0;              // index of the node that is being checked
};

}  // namespace ferry::xnnpack
