#include <optional>

#include "formats/pte/operator_args.h"
#include "kernels/kernels.h"
#include "runner/step_joiner.h"

namespace ferry::runner {
namespace {

using kernels::Tensor;
using kernels::Value;
using pte::ops::Add;
using pte::ops::Binary;
using pte::ops::Mean;
using pte::ops::Rsqrt;

constexpr kernels::Kernel kRmsNorm = {kRmsNormName, kernels::rms_norm_steps, 0,
                                      kernels::Kernel::Memory::kInPlace};

// The last step computes the norm of the only input.
struct Norm : JoinedSteps {
  Value* eps = nullptr;
  Value* weight = nullptr;
};

class NormJoiner : StepJoiner {
 public:
  explicit NormJoiner(Loading& loading) : StepJoiner(loading), loading_(loading) {}

  void run() {
    if (uses_.written_through_views(loading_)) return;
    for (size_t i = 0; i < state_.steps.size(); ++i) {
      if (!uses_.is(i, Rsqrt::kName)) continue;
      if (std::optional<Norm> norm = norm_at(i); norm && is_kept(*norm)) apply(*norm);
    }
  }

 private:
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
    Norm norm;
    norm.eps = sum.args[Add::kOther];
    norm.out = state_.steps[*mul].args[Binary::kOut];
    if (!is_f32(norm.out)) return std::nullopt;
    norm.steps = {*square, *mean, *add, rsqrt, *mul};
    take_widening(x, {*square, *mul}, norm.steps);
    norm.inputs = {x};
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

  void apply(const Norm& norm) {
    Value* x = norm.inputs.front();
    Value* weight = norm.weight == nullptr ? &state_.joined.made.emplace_back() : norm.weight;
    JoinedSteps joined = norm;
    joined.inputs.push_back(norm.eps);
    if (norm.weight != nullptr) joined.inputs.push_back(norm.weight);
    StepJoiner::apply(joined, kRmsNorm, {x, norm.eps, weight, norm.out});
  }

  Loading& loading_;
};

}  // namespace

void join_norms(Loading& loading) { NormJoiner(loading).run(); }

}  // namespace ferry::runner
