// Executes a compiled delegate, and plans its memory.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/checked.h"
#include "kernels/compute.h"
#include "kernels/kernel.h"
#include "runner/delegate/plan.h"

namespace ferry::runner {
namespace {

using kernels::Dims;
using kernels::Tensor;

constexpr uint64_t kArenaAlignment = 64;
// a limit with which the sums below cannot overflow
constexpr uint64_t kMaxScratch = uint64_t{1} << 46;

// The free pieces of scratch memory below `end`, in order.
class Pieces {
 public:
  uint64_t end() const { return end_; }

  // Takes memory from the first piece that is large enough.
  uint64_t take(uint64_t bytes) {
    for (size_t i = 0; i < free_.size(); ++i) {
      if (free_[i].bytes < bytes) continue;
      const uint64_t offset = free_[i].offset;
      free_[i].offset += bytes;
      free_[i].bytes -= bytes;
      if (free_[i].bytes == 0) free_.erase(free_.begin() + static_cast<ptrdiff_t>(i));
      return offset;
    }
    end_ += bytes;
    return end_ - bytes;
  }

  void give(uint64_t offset, uint64_t bytes) {
    auto after = std::ranges::lower_bound(free_, offset, {}, &Piece::offset);
    after = free_.insert(after, {offset, bytes});
    if (after + 1 != free_.end() && after->offset + after->bytes == (after + 1)->offset) {
      after->bytes += (after + 1)->bytes;
      free_.erase(after + 1);
    }
    if (after != free_.begin() && (after - 1)->offset + (after - 1)->bytes == after->offset) {
      (after - 1)->bytes += after->bytes;
      free_.erase(after);
    }
  }

 private:
  struct Piece {
    uint64_t offset, bytes;
  };
  std::vector<Piece> free_;
  uint64_t end_ = 0;
};

int64_t count_rows(const Dims& shape) { return kernels::numel(shape.span()) / shape.back(); }

uint64_t scratch_of(const PlanStep& step, const std::vector<PlannedValue>& values) {
  if (!step.linear || step.linear->kind != LinearStep::Kind::kDynamic) return 0;
  return kernels::dynamic_linear_scratch(count_rows(values[step.reads[0]].shape),
                                         step.linear->columns);
}

void clamp_all(Tensor& out, const xnnpack::MinMax& range, ThreadPool& pool) {
  constexpr int64_t kPiece = int64_t{1} << 15;
  kernels::for_pieces(pool, out.numel, kPiece, [&](int64_t begin, int64_t end) {
    for (float* at = out.as<float>() + begin; at != out.as<float>() + end; ++at) {
      *at = *at < range.min ? range.min : *at > range.max ? range.max : *at;
    }
  });
}

void plain_linear(const LinearStep& step, const float* x, int64_t m, Tensor& out,
                  ThreadPool& pool) {
  const int64_t n = out.sizes.back();
  kernels::linear(DType::kF32, x, step.matrix, out.data, m, n, step.columns, pool);
  const float* bias = step.tasks[0].bias;
  if (bias == nullptr) return;
  kernels::for_pieces(
      pool, m, std::max<int64_t>(1, (1 << 15) / n), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          kernels::add_f32(out.as<float>() + i * n, bias, out.as<float>() + i * n, n);
        }
      });
}

// Quantises rows of `columns` values and returns the dequantised values.
std::vector<float> rounded_rows(const float* x, int64_t rows, int64_t columns) {
  const auto width = static_cast<size_t>(columns);
  std::vector<float> rounded(static_cast<size_t>(rows) * width);
  std::vector<int8_t> codes(width);
  for (size_t at = 0; at < rounded.size(); at += width) {
    const kernels::QuantizedRow row = kernels::quantize_row(std::span(x + at, width), codes);
    for (size_t i = 0; i < width; ++i) {
      rounded[at + i] = static_cast<float>(codes[i] - row.zero_point) * row.inverse_scale;
    }
  }
  return rounded;
}

// The caller has set the outs of the tasks.
void run_products(Delegate::Plan& plan, LinearStep& linear, const Tensor& input, Tensor& first_out,
                  ThreadPool& pool) {
  const int64_t m = input.numel / linear.columns;
  if (m == 0) return;
  const float* x = input.as<float>();
  if (linear.kind == LinearStep::Kind::kDynamic) {
    const std::span scratch(plan.memory.scratch() + plan.value_bytes, plan.linear_bytes);
    kernels::dynamic_linear(x, m, linear.columns, linear.tasks, scratch, pool);
  } else if (linear.rounds_rows) {
    const std::vector<float> rounded = rounded_rows(x, m, linear.columns);
    kernels::weight_only_linear(rounded.data(), m, linear.columns, linear.tasks, pool);
  } else if (linear.kind == LinearStep::Kind::kWeightOnly) {
    kernels::weight_only_linear(x, m, linear.columns, linear.tasks, pool);
  } else {
    plain_linear(linear, x, m, first_out, pool);
  }
}

Status run_linear(Delegate::Plan& plan, PlanStep& step, ThreadPool& pool) {
  LinearStep& linear = *step.linear;
  for (size_t i = 0; i < linear.products.size(); ++i) {
    const PlannedValue& out = plan.values[linear.products[i].out];
    FERRY_RETURN_IF_ERROR(kernels::resize(*out.tensor, out.shape));
    linear.tasks[i].out = out.tensor->as<float>();
  }
  run_products(plan, linear, *plan.values[step.reads[0]].tensor,
               *plan.values[linear.products[0].out].tensor, pool);
  for (const LinearStep::Product& product : linear.products) {
    if (product.range) clamp_all(*plan.values[product.out].tensor, *product.range, pool);
  }
  return {};
}

bool same_inputs(const Delegate::Plan& plan) {
  return std::ranges::all_of(plan.input_values, [&](size_t input) {
    return plan.values[input].tensor->sizes == plan.values[input].shape;
  });
}

// Sets the tensors of the values in scratch memory to their addresses and shapes.
void bind(Delegate::Plan& plan) {
  plan.base = plan.memory.scratch();
  for (PlannedValue& value : plan.values) {
    if (!value.is_scratch) continue;
    value.tensor->sizes = value.shape;
    value.tensor->numel = kernels::numel(value.shape.span());
    value.tensor->data = plan.memory.scratch() + value.offset;
  }
}

// Returns whether the values and products need no more than the present memory.
bool fits(const Delegate::Plan& plan) {
  for (const PlannedValue& value : plan.values) {
    const uint64_t bytes =
        static_cast<uint64_t>(kernels::numel(value.shape.span())) * sizeof(float);
    if (value.is_scratch && bytes > value.tensor->capacity) return false;
  }
  return std::ranges::all_of(plan.steps, [&](const PlanStep& step) {
    return scratch_of(step, plan.values) <= plan.linear_bytes;
  });
}

Status prepare(Delegate::Plan& plan) {
  if (!plan.seen || !same_inputs(plan)) {
    plan.seen = false;
    FERRY_RETURN_IF_ERROR(plan.infer_shapes());
    if (!fits(plan)) {
      MemoryBudget rest{std::nullopt};
      FERRY_RETURN_IF_ERROR(plan.place(rest));
    }
    bind(plan);
    plan.seen = true;
  } else if (plan.base != plan.memory.scratch()) {
    bind(plan);
  }
  return {};
}

}  // namespace

Error Delegate::Plan::at_node(size_t node, Error error) const {
  error.message =
      fmt::format("node {} ({}): {}", node, xnnpack::node_name(nodes[node].kind), error.message);
  return error;
}

Status Delegate::Plan::infer_shapes() {
  for (size_t input : input_values) values[input].shape = values[input].tensor->sizes;
  for (const ShapeRule& rule : rules) {
    const Dims* shapes[kMaxNodeInputs];
    for (size_t i = 0; i < rule.inputs.size(); ++i) shapes[i] = &values[rule.inputs[i]].shape;
    Result<Dims> shape = result_shape(nodes[rule.node], std::span(shapes, rule.inputs.size()));
    if (!shape) return Failure(at_node(rule.node, std::move(shape).error()));
    values[rule.out].shape = *shape;
  }
  return {};
}

Status Delegate::Plan::place(MemoryBudget& budget) {
  Pieces pieces;
  std::vector<std::vector<size_t>> ends(steps.size());
  std::vector<uint64_t> sizes(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (!values[i].is_scratch) continue;
    const auto bytes =
        static_cast<uint64_t>(kernels::numel(values[i].shape.span())) * sizeof(float);
    values[i].tensor->capacity = std::max(values[i].tensor->capacity, bytes);
    sizes[i] = align_up(std::max<uint64_t>(values[i].tensor->capacity, 1), kArenaAlignment);
    ends[values[i].last].push_back(i);
    if (sizes[i] > kMaxScratch) return bad_input("its values take too much memory");
  }
  for (size_t i = 0; i < steps.size(); ++i) {
    for (size_t value : steps[i].writes) {
      if (values[value].is_scratch) values[value].offset = pieces.take(sizes[value]);
    }
    for (size_t value : ends[i]) pieces.give(values[value].offset, sizes[value]);
    linear_bytes = std::max(linear_bytes, scratch_of(steps[i], values));
    if (pieces.end() > kMaxScratch || linear_bytes > kMaxScratch) {
      return bad_input("its values take too much memory");
    }
  }
  value_bytes = pieces.end();
  return memory.reserve(value_bytes + linear_bytes, budget);
}

Status Delegate::run(ThreadPool& pool) {
  FERRY_RETURN_IF_ERROR(plan_->reordered.read(pool));
  FERRY_RETURN_IF_ERROR(prepare(*plan_));
  // Steps of images do not resize what they write: in row-major graphs they write scratch memory.
  for (const Plan::ReorderedOutput& output : plan_->reordered_outputs) {
    FERRY_RETURN_IF_ERROR(
        kernels::resize(*plan_->values[output.value].tensor, plan_->values[output.shape].shape));
  }
  for (PlanStep& step : plan_->steps) {
    Status status =
        step.linear ? run_linear(*plan_, step, pool) : step.run({step.args, step.variant, pool});
    if (!status) return Failure(plan_->at_node(step.node, std::move(status).error()));
  }
  return plan_->reordered.write(pool);
}

bool Delegate::is_linear() const {
  return plan_->reordered.empty() && plan_->steps.size() == 1 && plan_->steps[0].linear &&
         plan_->steps[0].linear->products.size() == 1 && plan_->inputs.size() == 1;
}

bool Delegate::is_by_rows() const {
  return plan_->reordered.empty() && plan_->inputs.size() == 1 &&
         std::ranges::all_of(plan_->steps, [](const PlanStep& step) { return bool(step.linear); });
}

Status Delegate::run_rows(const Tensor& input, Tensor& out, ThreadPool& pool) {
  FERRY_RETURN_IF_ERROR(prepare(*plan_));
  LinearStep& linear = *plan_->steps[0].linear;
  linear.tasks[0].out = out.as<float>();
  run_products(*plan_, linear, input, out, pool);
  if (linear.products[0].range) clamp_all(out, *linear.products[0].range, pool);
  return {};
}

}  // namespace ferry::runner
