#include <optional>

#include "formats/pte/operator_args.h"
#include "kernels/kernels.h"
#include "runner/step_joiner.h"

namespace ferry::runner {
namespace {

using kernels::Kernel;
using kernels::Value;
using pte::ops::Binary;

constexpr Kernel gated_by(kernels::GateActivation activation) {
  return {kGatedProductName, kernels::gated_product, static_cast<int>(activation),
          Kernel::Memory::kInPlace};
}
constexpr Kernel kBySilu = gated_by(kernels::GateActivation::kSilu);
constexpr Kernel kByGelu = gated_by(kernels::GateActivation::kGelu);
constexpr Kernel kByGeluTanh = gated_by(kernels::GateActivation::kGeluTanh);

// The inputs are the values of the gate and those that it multiplies.
struct Gate : JoinedSteps {
  const Kernel* kernel = nullptr;
};

class GateJoiner : StepJoiner {
 public:
  explicit GateJoiner(Loading& loading) : StepJoiner(loading), loading_(loading) {}

  void run() {
    if (uses_.written_through_views(loading_)) return;
    for (size_t i = 0; i < state_.steps.size(); ++i) {
      std::optional<Gate> gate = gate_at(i);
      if (!gate || !is_kept(*gate)) continue;
      apply(*gate, *gate->kernel, {gate->inputs[0], gate->inputs[1], gate->out});
    }
  }

 private:
  // Finds the gate whose activation step `at` begins.
  std::optional<Gate> gate_at(size_t at) const {
    const bool silu = uses_.is(at, "aten::sigmoid.out"), gelu = uses_.is(at, "aten::gelu.out");
    if (!silu && !gelu) return std::nullopt;
    const Step& first = state_.steps[at];
    Value *self = first.args.front(), *active = first.args.back();
    if (!is_f32(self) || !is_f32(active)) return std::nullopt;
    size_t activated = at;
    if (silu) {
      const std::optional<size_t> mul = product_of(active);
      if (!mul || other_factor(*mul, active) != self) return std::nullopt;
      activated = *mul;
      active = state_.steps[activated].args[Binary::kOut];
    }
    const std::optional<size_t> mul = product_of(active);
    Value* other = mul ? other_factor(*mul, active) : nullptr;
    if (other == nullptr || other == self || !is_f32(other)) return std::nullopt;
    Gate gate;
    gate.kernel = silu ? &kBySilu : gelu_kernel(first.args[1]->text);
    if (gate.kernel == nullptr) return std::nullopt;
    gate.out = state_.steps[*mul].args[Binary::kOut];
    if (!is_f32(gate.out)) return std::nullopt;
    gate.steps = {at, *mul};
    if (activated != at) gate.steps.push_back(activated);
    take_widening(self, {at, activated}, gate.steps);
    take_widening(other, {*mul}, gate.steps);
    gate.inputs = {self, other};
    take_narrowing(gate);
    return gate;
  }

  static const Kernel* gelu_kernel(const std::string& approximate) {
    if (approximate == "tanh") return &kByGeluTanh;
    return approximate == "none" ? &kByGelu : nullptr;
  }

  // Returns the product that alone reads `value`.
  std::optional<size_t> product_of(const Value* value) const {
    const std::optional<size_t> mul = is_f32(value) ? only_reader_of(value) : std::nullopt;
    return mul && uses_.is(*mul, Binary::kName) ? mul : std::nullopt;
  }

  Loading& loading_;
};

}  // namespace

void join_gates(Loading& loading) { GateJoiner(loading).run(); }

}  // namespace ferry::runner
