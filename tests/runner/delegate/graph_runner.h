// GraphRunner: builds a graph with its arguments and constants, and executes it as one delegate.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/thread_pool.h"
#include "formats/xnnpack/graph.h"
#include "runner/delegate/delegate.h"

namespace ferry::runner {

struct Input {
  kernels::Dims sizes;
  std::vector<float> values;
};
using Output = Input;

class GraphRunner {
 public:
  xnnpack::Graph graph;
  bool literal = false, widen = false, round_rows = false;
  uint64_t memory_bytes = 1 << 20;
  std::vector<uint8_t> order = {};  // of the dimensions of all arguments in memory

  uint32_t input(const Input& input) {
    const uint32_t id = argument(input.sizes, /*dynamic=*/false, /*is_input=*/true);
    set(args_.size() - 1, input);
    return id;
  }
  uint32_t output(const kernels::Dims& sizes) { return argument(sizes, false, false); }
  uint32_t dynamic_input(const kernels::Dims& sizes) { return argument(sizes, true, true); }
  uint32_t dynamic_output(const kernels::Dims& sizes) { return argument(sizes, true, false); }

  uint32_t inner(const kernels::Dims& sizes) { return value(sizes).id; }
  uint32_t quantised(const kernels::Dims& sizes, int32_t nonbatch = 1) {
    xnnpack::Value& made = value(sizes);
    made.datatype = xnnpack::Datatype::kQDInt8;
    made.quantization = xnnpack::PerToken{nonbatch};
    return made.id;
  }
  uint32_t constant(const Input& from) {
    std::vector<std::byte> bytes(from.values.size() * sizeof(float));
    std::ranges::copy(std::as_bytes(std::span(from.values)), bytes.begin());
    xnnpack::Value& made = value(from.sizes);
    made.constant = add_bytes(bytes);
    return made.id;
  }
  // group 0 means a scale for each row.
  uint32_t coded(const kernels::Dims& sizes, xnnpack::Datatype datatype, uint32_t group,
                 const std::vector<std::byte>& codes, const std::vector<std::byte>& scales) {
    const uint32_t data = add_bytes(codes), scale = add_bytes(scales);
    const auto rows = static_cast<uint32_t>(sizes[0]), columns = static_cast<uint32_t>(sizes[1]);
    xnnpack::Value& made = value(sizes);
    made.datatype = datatype;
    made.constant = data;
    if (group > 0) {
      made.quantization = xnnpack::PerChannelGroup{0, group, scale, rows * columns / group};
    } else {
      made.quantization = xnnpack::PerChannel{0, scale, rows};
    }
    return made.id;
  }

  xnnpack::Node& add(xnnpack::NodeKind kind, std::vector<uint32_t> inputs, uint32_t output) {
    graph.nodes.push_back({.kind = kind, .inputs = std::move(inputs), .outputs = {output}});
    return graph.nodes.back();
  }

  // Sets an argument, which may become smaller.
  void set(size_t argument, const Input& input) {
    kernels::Tensor& tensor = tensors_[argument];
    tensor.sizes = input.sizes;
    tensor.numel = kernels::numel(input.sizes.span());
    std::ranges::copy(input.values, reinterpret_cast<float*>(tensor.data));
  }

  Status compile() {
    std::vector<std::span<const std::byte>> constants;
    for (const std::vector<std::byte>& bytes : bytes_) constants.emplace_back(bytes);
    std::vector<std::span<const uint8_t>> orders(args_.size(), order);
    const auto copy = [](std::span<const std::byte> bytes) { return bytes; };
    MemoryBudget budget(memory_bytes);
    memory_ = std::make_unique<DelegateMemory>(/*poison=*/true);
    delegate_ = FERRY_TRY(Delegate::compile(
        {graph, constants, args_, orders, copy, literal, widen, round_rows}, *memory_, budget));
    return {};
  }

  Result<std::vector<Output>> run() {
    if (delegate_ == nullptr) FERRY_RETURN_IF_ERROR(compile());
    FERRY_RETURN_IF_ERROR(delegate_->run(pool_));
    std::vector<Output> outputs;
    for (const kernels::Tensor* tensor : delegate_->outputs()) {
      outputs.push_back({tensor->sizes, std::vector<float>(tensor->as<float>(),
                                                           tensor->as<float>() + tensor->numel)});
    }
    return outputs;
  }

 private:
  xnnpack::Value& value(const kernels::Dims& sizes) {
    xnnpack::Value& made = graph.values.emplace_back();
    made.id = static_cast<uint32_t>(graph.values.size() - 1);
    for (int64_t size : sizes) made.dims.push_back(static_cast<uint32_t>(size));
    return made;
  }

  uint32_t argument(const kernels::Dims& sizes, bool dynamic, bool is_input) {
    xnnpack::Value& made = value(sizes);
    made.external = graph.num_externals++;
    (is_input ? made.is_input : made.is_output) = true;
    kernels::Tensor& tensor = tensors_.emplace_back();
    tensor.id = static_cast<int32_t>(tensors_.size() - 1);
    tensor.dynamic = dynamic;
    tensor.writable = !is_input;
    tensor.sizes = sizes;
    tensor.numel = kernels::numel(sizes.span());
    tensor.capacity = static_cast<uint64_t>(tensor.bytes());
    memories_.emplace_back(static_cast<size_t>(tensor.numel) + 1);
    tensor.data = reinterpret_cast<std::byte*>(memories_.back().data());
    args_.push_back(&tensor);
    return made.id;
  }

  uint32_t add_bytes(const std::vector<std::byte>& bytes) {
    bytes_.push_back(bytes);
    graph.constants.emplace_back().bytes = bytes.size();
    return static_cast<uint32_t>(bytes_.size() - 1);
  }

  ThreadPool pool_{2};
  std::deque<kernels::Tensor> tensors_;
  std::deque<std::vector<float>> memories_;
  std::vector<kernels::Tensor*> args_;
  std::deque<std::vector<std::byte>> bytes_ = {{}};  // of Graph::constants
  std::unique_ptr<DelegateMemory> memory_;
  std::unique_ptr<Delegate> delegate_;
};

using Floats = std::vector<float>;

inline void expect_near(const Floats& got, const Floats& want, float bound = 1e-6F) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], bound * std::max(1.0F, std::abs(want[i]))) << i;
  }
}

}  // namespace ferry::runner
