#include "formats/pte/operator_args.h"
#include "runner/step_rewrites.h"

#include <algorithm>
#include <optional>

namespace ferry::runner {
namespace {

using kernels::Tensor;
using kernels::Value;

// An operator that works row by row. Its first argument holds the rows that it reads, and it writes
// rows of `out`. A delegate has no such arguments.
struct RowOp {
  std::string_view name;
  size_t out;
};
constexpr RowOp kLinears[] = {{pte::ops::Linear::kName, pte::ops::Linear::kOut},
                              {pte::ops::MixedLinear::kName, pte::ops::MixedLinear::kOut},
                              {pte::ops::BlockLinear::kName, pte::ops::BlockLinear::kOut}};
constexpr RowOp kDelegate = {"a linear layer as a delegate", 0};
constexpr RowOp kElementwise[] = {
    {pte::ops::ToCopy::kName, pte::ops::ToCopy::kOut},
    {pte::ops::QuantizePerTensor::kName, pte::ops::QuantizePerTensor::kOut}};

bool is_linear(const RowOp& op) {
  return op.name == kDelegate.name ||
         std::ranges::find(kLinears, op.name, &RowOp::name) != std::end(kLinears);
}

int64_t rows_of(const Tensor& tensor) { return tensor.numel / tensor.sizes.back(); }

class WantedFinder {
 public:
  explicit WantedFinder(Loading& loading)
      : loading_(loading),
        state_(loading.state),
        writers_(state_.values.size()),
        readers_(state_.values.size(), 0) {
    for (size_t i = 0; i < state_.steps.size(); ++i) {
      for (int32_t v : state_.written[i]) writers_[static_cast<size_t>(v)].push_back(i);
      for (int32_t v : loading_.reads[i]) ++readers_[static_cast<size_t>(v)];
    }
  }

  void run() {
    for (int32_t output : state_.outputs) state_.row_outputs.push_back(find(output));
  }

 private:
  // Finds the steps from a linear layer to the output. The result is empty if other steps are among
  // them.
  RowOutput find(int32_t output) {
    std::vector<std::pair<size_t, size_t>> steps;
    for (int32_t value = output;;) {
      const std::optional<RowOp> op = made_by(value, value == output);
      if (!op) return {};
      const size_t at = writers_[static_cast<size_t>(value)].front();
      steps.emplace_back(at, op->out);
      if (is_linear(*op)) break;
      value = state_.steps[at].args.front()->id;
    }
    RowOutput found{rows_of(*loading_.tensor(output))};
    for (const auto& [step, out] : steps) found.links.push_back(link(step, out));
    return found;
  }

  // Returns whether a tensor always has its own memory.
  bool is_plain(const Tensor* tensor) const {
    if (tensor == nullptr || tensor->dynamic || tensor->rank() == 0 || tensor->numel == 0 ||
        !state_.planned[static_cast<size_t>(tensor->id)]) {
      return false;
    }
    return std::ranges::none_of(state_.rebound,
                                [&](const Rebound& other) { return other.tensor == tensor; });
  }

  std::optional<RowOp> made_by(int32_t value, bool is_output) const {
    const auto v = static_cast<size_t>(value);
    if (writers_[v].size() != 1 || readers_[v] != (is_output ? 0 : 1)) return std::nullopt;
    const auto uses = std::ranges::count(state_.outputs, value);
    if (uses != (is_output ? 1 : 0) || std::ranges::count(state_.inputs, value) > 0) {
      return std::nullopt;
    }
    const Step& step = state_.steps[writers_[v].front()];
    if (step.kind == Step::Kind::kDelegate) {
      const bool rows = step.delegate->is_linear() && is_plain(step.inputs[0]) &&
                        is_plain(step.outs[0]) &&
                        rows_of(*step.inputs[0]) == rows_of(*step.outs[0]);
      return rows ? std::optional(kDelegate) : std::nullopt;
    }
    if (step.kind != Step::Kind::kKernel) return std::nullopt;
    const auto linear = std::ranges::find(kLinears, step.kernel->name, &RowOp::name);
    const auto op = std::ranges::find(kElementwise, step.kernel->name, &RowOp::name);
    if (linear == std::end(kLinears) && op == std::end(kElementwise)) return std::nullopt;
    const Value* in = step.args.front();
    const Value* out = &state_.values[v];
    if (!is_plain(in->tensor) || !is_plain(out->tensor) ||
        rows_of(*in->tensor) != rows_of(*out->tensor)) {
      return std::nullopt;
    }
    if (linear != std::end(kLinears)) return *linear;
    return in->tensor->sizes == out->tensor->sizes ? std::optional(*op) : std::nullopt;
  }

  Value* some_rows(Tensor* of, Tensor*& rows) {
    rows = &state_.row_tensors.emplace_back(*of);
    return &state_.row_values.emplace_back(
        Value{.kind = Value::Kind::kTensor, .id = of->id, .tensor = rows});
  }

  RowOutput::Link link_delegate(size_t index) {
    const Step& step = state_.steps[index];
    RowOutput::Link link{index, step, step, step.inputs[0], step.outs[0]};
    link.some.in_rows = link.in_rows = &state_.row_tensors.emplace_back(*link.in);
    link.some.out_rows = link.out_rows = &state_.row_tensors.emplace_back(*link.out);
    return link;
  }

  RowOutput::Link link(size_t index, size_t out) {
    const Step& step = state_.steps[index];
    if (step.kind == Step::Kind::kDelegate) return link_delegate(index);
    RowOutput::Link link{index, step, step, step.args.front()->tensor, step.args[out]->tensor};
    auto& args = state_.row_args.emplace_back(step.args.begin(), step.args.end());
    args.front() = some_rows(link.in, link.in_rows);
    args[out] = some_rows(link.out, link.out_rows);
    link.some.args = args;
    return link;
  }

  Loading& loading_;
  MethodState& state_;
  std::vector<std::vector<size_t>> writers_;  // per value: steps
  std::vector<int> readers_;                  // per value: number of readers
};

void choose(const Tensor& all, int64_t begin, int64_t count, Tensor& rows) {
  const int64_t row = all.sizes.back();
  rows.sizes = {count, row};
  rows.numel = count * row;
  rows.data = all.data + begin * row * all.element_bytes();
  rows.capacity = static_cast<uint64_t>(rows.bytes());
}

}  // namespace

void find_row_outputs(Loading& loading) { WantedFinder(loading).run(); }

void want_rows(MethodState& state, size_t output, int64_t begin, int64_t count) {
  if (output >= state.row_outputs.size()) return;
  RowOutput& rows = state.row_outputs[output];
  const bool all = begin == 0 && count == rows.rows;
  const bool observed = std::ranges::any_of(
      rows.links, [&](const RowOutput::Link& link) { return state.steps[link.step].observed; });
  for (RowOutput::Link& link : rows.links) {
    const bool was_observed = state.steps[link.step].observed;
    if (!all && !observed) {
      choose(*link.in, begin, count, *link.in_rows);
      choose(*link.out, begin, count, *link.out_rows);
    }
    state.steps[link.step] = all || observed ? link.stated : link.some;
    state.steps[link.step].observed = was_observed;
  }
}

void want_all_rows(MethodState& state) {
  for (size_t i = 0; i < state.row_outputs.size(); ++i) {
    want_rows(state, i, 0, state.row_outputs[i].rows);
  }
}

}  // namespace ferry::runner
