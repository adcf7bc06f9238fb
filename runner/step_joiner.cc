#include "runner/step_joiner.h"

#include <algorithm>

#include "formats/pte/operator_args.h"

namespace ferry::runner {

using kernels::Tensor;
using kernels::Value;
using pte::ops::Binary;
using pte::ops::ToCopy;

bool StepJoiner::is_f32(const Value* value) {
  return value->tensor != nullptr && value->tensor->dtype == DType::kF32 && !value->tensor->widened;
}

bool StepJoiner::only_readers(const Value* value, std::initializer_list<size_t> steps) const {
  return std::ranges::all_of(
      uses_.readers(value), [&](size_t at) { return std::ranges::find(steps, at) != steps.end(); });
}

std::optional<size_t> StepJoiner::maker(const Value* value, size_t reader) const {
  if (!is_f32(value) || !uses_.is_inner(value) || !only_readers(value, {reader})) {
    return std::nullopt;
  }
  return uses_.writers(value).front();
}

std::optional<size_t> StepJoiner::only_reader_of(const Value* value) const {
  if (!uses_.is_inner(value) || uses_.readers(value).empty()) return std::nullopt;
  const size_t reader = uses_.readers(value).front();
  if (!only_readers(value, {reader})) return std::nullopt;
  return reader;
}

Value* StepJoiner::other_factor(size_t mul, const Value* value) const {
  const Step& step = state_.steps[mul];
  Value *a = step.args[Binary::kSelf], *b = step.args[Binary::kOther];
  if (a == b) return nullptr;
  return a == value ? b : a;
}

bool StepJoiner::is_cast(size_t step) const {
  return uses_.is(step, ToCopy::kName) &&
         state_.steps[step].args[ToCopy::kSelf]->tensor != nullptr &&
         !state_.steps[step].args[ToCopy::kSelf]->tensor->widened &&
         !state_.steps[step].args[ToCopy::kOut]->tensor->widened;
}

void StepJoiner::take_widening(Value*& value, std::initializer_list<size_t> readers,
                               std::vector<size_t>& steps) const {
  if (!uses_.is_inner(value) || !only_readers(value, readers)) return;
  const size_t cast = uses_.writers(value).front();
  if (!is_cast(cast)) return;
  Value* half = state_.steps[cast].args[ToCopy::kSelf];
  if (!is_half(half->tensor->dtype)) return;
  value = half;
  steps.push_back(cast);
}

void StepJoiner::take_narrowing(JoinedSteps& joined) const {
  const std::optional<size_t> cast = only_reader_of(joined.out);
  if (!is_f32(joined.out) || !cast || !is_cast(*cast)) return;
  Value* out = state_.steps[*cast].args[ToCopy::kOut];
  if (!is_half(out->tensor->dtype)) return;
  joined.out = out;
  joined.steps.push_back(*cast);
}

// Returns whether no other step writes the memory of `input` from the first step that reads it to
// the last one.
bool StepJoiner::stays(const JoinedSteps& joined, const Value* input) const {
  const auto reads = [&](size_t step) {
    return std::ranges::count(uses_.readers(input), step) > 0;
  };
  const auto first = std::ranges::find_if(joined.steps, reads);
  return first != joined.steps.end() &&
         !uses_.writes(*first, joined.steps.back(), *input->tensor, joined.steps);
}

// Returns whether the last step writes the result, and the results of the others are read behind
// them.
bool StepJoiner::in_order(const JoinedSteps& joined) const {
  if (std::ranges::count(state_.written[joined.steps.back()], joined.out->id) == 0) return false;
  return std::all_of(joined.steps.begin(), joined.steps.end() - 1, [&](size_t step) {
    return std::ranges::all_of(state_.written[step], [&](int32_t value) {
      const std::vector<size_t>& readers =
          uses_.readers(&state_.values[static_cast<size_t>(value)]);
      return std::ranges::all_of(readers, [&](size_t reader) { return reader > step; });
    });
  });
}

bool StepJoiner::is_kept(JoinedSteps& joined) const {
  std::ranges::sort(joined.steps);
  const size_t first = joined.steps.front(), last = joined.steps.back();
  if (!uses_.in_one_go(first, first, last) || !in_order(joined)) return false;
  const Tensor& out = *joined.out->tensor;
  return out.data != nullptr && std::ranges::all_of(joined.inputs, [&](const Value* input) {
           const Tensor& x = *input->tensor;
           if (x.data == nullptr || !stays(joined, input)) return false;
           const bool apart = x.data + x.capacity <= out.data || out.data + out.capacity <= x.data;
           return apart || (x.data == out.data && x.dtype == out.dtype);
         });
}

void StepJoiner::apply(const JoinedSteps& joined, const kernels::Kernel& kernel,
                       std::vector<Value*> args) {
  JoinedCaches& changes = state_.joined;
  const size_t last = joined.steps.back();
  for (const size_t at : joined.steps) {
    changes.stated.emplace_back(at, state_.steps[at]);
    if (at == last) continue;
    state_.steps[at].kind = Step::Kind::kNothing;
    changes.values.insert(changes.values.end(), state_.written[at].begin(),
                          state_.written[at].end());
  }
  std::vector<Tensor*> inputs;
  for (const Value* input : joined.inputs) inputs.push_back(input->tensor);
  Step& step = state_.steps[last];
  step.kernel = &kernel;
  step.args = changes.args.emplace_back(std::move(args));
  step.inputs = changes.inputs.emplace_back(std::move(inputs));
}

}  // namespace ferry::runner
