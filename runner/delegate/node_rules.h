// The nodes of a graph. NodeRule says which kernel executes a kind of node, and with which
// arguments. result_shape() gives the shape of its result. This is not a public header.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "core/result.h"
#include "formats/xnnpack/graph.h"
#include "kernels/kernel_table.h"
#include "kernels/tensor.h"

namespace ferry::runner {

// Makes the arguments of one kernel call. Their values live in `made`.
class KernelArgs {
 public:
  KernelArgs(std::deque<kernels::Value>& made, std::vector<kernels::Value*>& args)
      : made_(made), args_(args) {}

  void tensor(kernels::Tensor* tensor);
  void tensors(std::span<kernels::Tensor* const> tensors);  // one argument, which is a list
  void integer(int64_t value);
  void integers(std::span<const int64_t> values);
  void real(double value);
  void boolean(bool value);
  void text(std::string value);
  void none();

 private:
  kernels::Value& add(kernels::Value::Kind kind);
  kernels::Value* make(kernels::Value::Kind kind);

  std::deque<kernels::Value>& made_;
  std::vector<kernels::Value*>& args_;
};

struct NodeRule {
  xnnpack::NodeKind kind;
  size_t inputs;
  kernels::KernelFn run;
  int variant = 0;
  // Adds the arguments between the inputs and the out; nullptr if there are none. For a kernel that
  // reads its only input twice, or takes a list of inputs, this function adds the inputs too.
  void (*add_args)(const xnnpack::Node& node, KernelArgs& args) = nullptr;
  // kBadInput or kUnsupported for lists and factors that the kernel does not support.
  Status (*check)(const xnnpack::Node& node) = nullptr;
  size_t optional = 0;  // how many of the inputs, at their end, may be absent
};

// Returns nullptr for kinds that no kernel executes: FullyConnected, Convert, and unsupported
// kinds.
const NodeRule* find_node_rule(xnnpack::NodeKind kind);

// The rules of convolutions, pooling, resizing and padding, and PReLU. Images are
// [batch, height, width, channels].
std::span<const NodeRule> image_rules();

// Adds the arguments of a call of the rule's kernel.
void add_node_args(const NodeRule& rule, const xnnpack::Node& node,
                   std::span<kernels::Tensor* const> inputs, kernels::Tensor* out,
                   KernelArgs& args);

// Returns whether XNNPACK clamps the result of this kind to Node::output_range.
bool clamps_result(xnnpack::NodeKind kind);
// kBadInput for an invalid range.
Status check_range(const xnnpack::MinMax& range);
// Returns whether the range limits any value.
bool limits(const xnnpack::MinMax& range);

// XNNPACK's limit of the number of dimensions.
inline constexpr size_t kMaxNodeRank = 6;
inline constexpr size_t kMaxNodeInputs = 5;

// `inputs` are the shapes of Node::inputs; for kFullyConnected those of input and filter. The
// node's lists must have been checked. kBadInput if the shapes do not fit the node or each other.
// The node is one of image_rules().
Result<kernels::Dims> image_shape(const xnnpack::Node& node,
                                  std::span<const kernels::Dims* const> inputs);
Result<kernels::Dims> result_shape(const xnnpack::Node& node,
                                   std::span<const kernels::Dims* const> inputs);

// -- kernels, in f32, of nodes that have no operator in programs

Status hardswish(const kernels::Call& call);   // self -> out: x * clamp(x / 6 + 1 / 2, 0, 1)
Status leaky_relu(const kernels::Call& call);  // self, slope -> out: x < 0 ? x * slope : x
Status elu(const kernels::Call& call);  // self, alpha -> out: x < 0 ? alpha * (exp(x) - 1) : x
// self, offsets, sizes -> out; a size of 0 is the whole dimension. The part must lie inside of
// self.
Status slice_all(const kernels::Call& call);
// a [..., m, k], b [..., k, n] -> out
Status batch_product(const kernels::Call& call);

}  // namespace ferry::runner
