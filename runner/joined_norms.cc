#include <algorithm>
#include <optional>

#include "formats/pte/operator_args.h"
#include "kernels/kernels.h"
#include "runner/step_rewrites.h"

namespace ferry::runner {
namespace {

using kernels::Tensor;
using kernels::Value;
using pte::ops::Add;
using pte::ops::Binary;
using pte::ops::Mean;
using pte::ops::Rsqrt;
using pte::ops::ToCopy;

constexpr kernels::Kernel kRmsNorm = {kRmsNormName, kernels::rms_norm_steps, 0,
                                      kernels::Kernel::Memory::kInPlace};

struct Norm {
  Value* x = nullptr;
  Value* eps = nullptr;
  Value* weight = nullptr;
  Value* out = nullptr;
  std::vector<size_t> steps = {};  // the last one computes the norm
};

class Joiner {
 public:
  explicit Joiner(Loading& loading) : loading_(loading), state_(loading.state), uses_(loading) {}

  void run() {
    if (uses_.written_through_views(loading_)) return;
    for (size_t i = 0; i < state_.steps.size(); ++i) {
      if (!uses_.is(i, Rsqrt::kName)) continue;
      if (std::optional<Norm> norm = norm_at(i); norm && is_kept(*norm)) apply(*norm);
    }
  }

 private:
  static bool is_f32(const Value* value) {
    return value->tensor != nullptr && value->tensor->dtype == DType::kF32 &&
           !value->tensor->widened;
  }

  // Returns the step that makes `value`, if only `reader` reads it.
  std::optional<size_t> maker(const Value* value, size_t reader) const {
    if (!is_f32(value) || !uses_.is_inner(value) || !only_reader(value, reader))
      return std::nullopt;
    return uses_.writers(value).front();
  }
  bool only_reader(const Value* value, size_t step) const {
    return std::ranges::all_of(uses_.readers(value), [&](size_t at) { return at == step; });
  }

  // Returns the step that alone reads `value`, which must be made in a norm.
  std::optional<size_t> only_reader_of(const Value* value) const {
    if (!uses_.is_inner(value) || uses_.readers(value).empty()) return std::nullopt;
    const size_t reader = uses_.readers(value).front();
    if (!only_reader(value, reader)) return std::nullopt;
    return reader;
  }

  // The argument of a product that is not `value`; null if both are.
  Value* other_factor(size_t mul, const Value* value) const {
    const Step& step = state_.steps[mul];
    Value *a = step.args[Binary::kSelf], *b = step.args[Binary::kOther];
    if (a == b) return nullptr;
    return a == value ? b : a;
  }

  // Finds the norm around an rsqrt. Its steps are named as in x * rsqrt(mean(x * x) + eps).
  std::optional<Norm> norm_at(size_t rsqrt) const {
    const Step& root = state_.steps[rsqrt];
    const std::optional<size_t> add = maker(root.args[Rsqrt::kSelf], rsqrt);
    if (!add || !uses_.is(*add, Add::kName) || !is_f32(root.args[Rsqrt::kOut])) return std::nullopt;
    const Step& sum = state_.steps[*add];
    const std::optional<size_t> mean = maker(sum.args[Add::kSelf], *add);
    if (!mean || !is_eps(sum) || !means_last(*mean)) return std::nullopt;
    const std::optional<size_t> square = maker(state_.steps[*mean].args[Mean::kSelf], *mean);
    if (!square || !uses_.is(*square, Binary::kName)) return std::nullopt;
    Value* x = state_.steps[*square].args[Binary::kSelf];
    if (x != state_.steps[*square].args[Binary::kOther] || !is_f32(x)) return std::nullopt;
    const std::optional<size_t> mul = only_reader_of(root.args[Rsqrt::kOut]);
    if (!mul || !uses_.is(*mul, Binary::kName) || other_factor(*mul, root.args[Rsqrt::kOut]) != x) {
      return std::nullopt;
    }
    Norm norm{.x = x, .eps = sum.args[Add::kOther]};
    norm.out = state_.steps[*mul].args[Binary::kOut];
    if (!is_f32(norm.out)) return std::nullopt;
    take_widening(*square, *mul, norm);
    norm.steps.insert(norm.steps.end(), {*square, *mean, *add, rsqrt, *mul});
    take_narrowing(norm);
    take_weight(norm);
    take_narrowing(norm);
    return norm;
  }

  bool is_eps(const Step& add) const {
    const Value* eps = add.args[Add::kOther];
    const Value* alpha = add.args[Add::kAlpha];
    return is_f32(eps) && uses_.is_constant(eps) && eps->tensor->numel == 1 &&
           eps->tensor->data != nullptr && uses_.is_constant(alpha) && alpha->is_number() &&
           alpha->number().real == 1;
  }

  bool means_last(size_t at) const {
    if (!uses_.is(at, Mean::kName)) return false;
    const Step& step = state_.steps[at];
    const std::span<Value* const> dims = step.args[Mean::kDims]->items;
    const int rank = step.args[Mean::kSelf]->tensor->rank();
    return dims.size() == 1 && uses_.is_constant(dims.front()) &&
           (dims.front()->integer == -1 || dims.front()->integer == rank - 1) && rank > 0 &&
           uses_.is_constant(step.args[Mean::kKeepDim]) && step.args[Mean::kKeepDim]->boolean &&
           step.args[Mean::kDtype]->kind == Value::Kind::kNone;
  }

  bool is_cast(size_t step) const {
    return uses_.is(step, ToCopy::kName) &&
           state_.steps[step].args[ToCopy::kSelf]->tensor != nullptr &&
           !state_.steps[step].args[ToCopy::kSelf]->tensor->widened &&
           !state_.steps[step].args[ToCopy::kOut]->tensor->widened;
  }

  // Reads f16 or bf16 instead of their copy in f32, if only the norm reads that.
  void take_widening(size_t square, size_t mul, Norm& norm) const {
    if (!uses_.is_inner(norm.x)) return;
    const auto other = [&](size_t at) { return at != square && at != mul; };
    if (std::ranges::any_of(uses_.readers(norm.x), other)) return;
    const size_t cast = uses_.writers(norm.x).front();
    if (!is_cast(cast)) return;
    Value* half = state_.steps[cast].args[ToCopy::kSelf];
    if (!is_half(half->tensor->dtype)) return;
    norm.x = half;
    norm.steps.push_back(cast);
  }

  // Writes f16 or bf16 instead of f32, if only a cast reads the result.
  void take_narrowing(Norm& norm) const {
    const std::optional<size_t> cast = only_reader_of(norm.out);
    if (!is_f32(norm.out) || !cast || !is_cast(*cast)) return;
    Value* out = state_.steps[*cast].args[ToCopy::kOut];
    if (!is_half(out->tensor->dtype)) return;
    norm.out = out;
    norm.steps.push_back(*cast);
  }

  void take_weight(Norm& norm) const {
    const std::optional<size_t> mul = only_reader_of(norm.out);
    if (!mul || !uses_.is(*mul, Binary::kName)) return;
    Value* weight = other_factor(*mul, norm.out);
    const DType dtype = norm.out->tensor->dtype;
    const Tensor* out = state_.steps[*mul].args[Binary::kOut]->tensor;
    if (weight == nullptr || weight->tensor == nullptr || !uses_.is_constant(weight) ||
        weight->tensor->rank() != 1 || weight->tensor->dynamic || weight->tensor->widened ||
        weight->tensor->dtype != dtype || out->dtype != dtype || out->widened) {
      return;
    }
    if (weight->tensor->sizes.back() != norm.out->tensor->sizes.back()) return;
    norm.weight = weight;
    norm.out = state_.steps[*mul].args[Binary::kOut];
    norm.steps.push_back(*mul);
  }

  // Returns whether the norm finds x as its first step would, and writes what its last one would.
  bool is_kept(const Norm& norm) const {
    if (!std::ranges::is_sorted(norm.steps)) return false;
    const size_t first = norm.steps.front(), last = norm.steps.back();
    if (!uses_.in_one_go(first, first, last)) return false;
    const Tensor &x = *norm.x->tensor, &out = *norm.out->tensor;
    if (x.data == nullptr || out.data == nullptr || uses_.writes(first, last, x)) return false;
    const bool apart = x.data + x.capacity <= out.data || out.data + out.capacity <= x.data;
    return apart || (x.data == out.data && x.dtype == out.dtype);
  }

  void apply(const Norm& norm) {
    JoinedCaches& joined = state_.joined;
    const size_t last = norm.steps.back();
    for (const size_t at : norm.steps) {
      joined.stated.emplace_back(at, state_.steps[at]);
      if (at == last) continue;
      state_.steps[at].kind = Step::Kind::kNothing;
      joined.values.insert(joined.values.end(), state_.written[at].begin(),
                           state_.written[at].end());
    }
    Value* weight = norm.weight == nullptr ? &joined.made.emplace_back() : norm.weight;
    std::vector<Value*> args = {norm.x, norm.eps, weight, norm.out};
    std::vector<Tensor*> inputs = {norm.x->tensor, norm.eps->tensor};
    if (norm.weight != nullptr) inputs.push_back(norm.weight->tensor);
    Step& step = state_.steps[last];
    step.kernel = &kRmsNorm;
    step.args = joined.args.emplace_back(std::move(args));
    step.inputs = joined.inputs.emplace_back(std::move(inputs));
  }

  Loading& loading_;
  MethodState& state_;
  StepUses uses_;
};

}  // namespace

void join_norms(Loading& loading) { Joiner(loading).run(); }

}  // namespace ferry::runner
