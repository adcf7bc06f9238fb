#include "proof/weight_budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "calibration/bit_allocation.h"
#include "converters/assemble.h"
#include "core/checked.h"
#include "core/text.h"
#include "plan/quantize_plan.h"
#include "proof/linear_inputs.h"
#include "proof/stored_weights.h"
#include "proof/weight_calibration.h"

namespace ferry::proof {
namespace {

using Scheme = graph::LinearQuantization::Kind;

constexpr std::string_view kOption = "quantize-budget", kBitsPerWeight = "bpw";
// Plans are made again, for a little more or less, until one fits.
constexpr int kTries = 12;
constexpr uint64_t kLargestBudget = uint64_t{1} << 60;
// The costs are measured with this share of the sequences, because they need less precision than
// the codes.
constexpr size_t kSequencesOfAll = 4;

const std::vector<graph::LinearQuantization>& all_schemes() {
  static const std::vector<graph::LinearQuantization> schemes = {{Scheme::k8da4w, 32},
                                                                 {Scheme::k8da4w, 64},
                                                                 {Scheme::k8da4w, 128},
                                                                 {Scheme::k8da8w},
                                                                 {Scheme::kNone}};
  return schemes;
}

Sequences some_of(const Sequences& sequences) {
  Sequences taken;
  for (size_t i = 0; i < sequences.size(); i += kSequencesOfAll) taken.add(sequences, i);
  return taken;
}

uint64_t weight_count(const std::map<std::string, const graph::Weight*>& weights,
                      const TensorSource& source) {
  std::set<std::string> seen;  // tied weights count once
  uint64_t count = 0;
  for (const auto& [name, weight] : weights) {
    if (!seen.insert(graph::text_of(weight->recipe, source) +
                     graph::source_names(weight->recipe, source))
             .second) {
      continue;
    }
    count += static_cast<uint64_t>(checked_numel(weight->recipe.output().shape).value_or(0));
  }
  return count;
}

class Planner {
 public:
  Planner(const plan::ConvertOptions& options, MeasuredCosts costs,
          const std::map<std::string, const graph::Weight*>& plain, ThreadPool& pool)
      : options_(options),
        pool_(pool),
        chosen_(std::move(costs.chosen)),
        smoothed_(std::move(costs.smoothed)) {
    for (const MatrixCost& cost : costs.matrices) {
      const bool is_ruled = std::ranges::any_of(options.quantize.rules, [&](const auto& rule) {
        return graph::matches(rule.pattern, cost.weight);
      });
      if (!is_ruled) add(cost, *plain.at(cost.weight));
    }
  }

  Result<BudgetPlan> run(uint64_t budget) {
    std::optional<BudgetPlan> smallest = plan_for(0, /*smallest=*/true);
    FERRY_RETURN_IF_ERROR(measure(*smallest));
    if (smallest->bytes > budget) {
      return fail_field(
          ErrorCode::kUsage, std::string(kOption),
          fmt::format(": the smallest bundle has {} bytes, more than {}", smallest->bytes, budget));
    }
    BudgetPlan best = *std::move(smallest);
    // The size of a bundle is that of the matrices and of all else, which hardly depends on them.
    // `budget` is at most kLargestBudget, so that no sum overflows.
    auto allowed = static_cast<int64_t>(size_of(best) + (budget - best.bytes));
    uint64_t before = best.bytes;
    for (int i = 0; i < kTries && allowed > 0; ++i) {
      std::optional<BudgetPlan> plan = plan_for(static_cast<uint64_t>(allowed), false);
      if (!plan) break;
      FERRY_RETURN_IF_ERROR(measure(*plan));
      if (std::exchange(before, plan->bytes) == plan->bytes) break;
      allowed += static_cast<int64_t>(budget) - static_cast<int64_t>(plan->bytes);
      if (plan->bytes <= budget && plan->divergence < best.divergence) best = *std::move(plan);
    }
    return best;
  }

 private:
  struct Matrix {
    std::string weight;
    std::vector<graph::LinearQuantization> schemes;
  };

  void add(const MatrixCost& cost, const graph::Weight& plain) {
    Matrix matrix{cost.weight, {}};
    std::vector<calibration::BitChoice> choices;
    const Shape& shape = plain.recipe.output().shape;
    uint64_t rows = 1;
    for (const int64_t dim : std::span(shape).first(shape.size() - 1)) {
      rows *= static_cast<uint64_t>(dim);
    }
    const auto put = [&](const graph::LinearQuantization& scheme, double error) {
      const graph::QuantizationScheme form = cost.form_of(scheme);
      matrix.schemes.push_back(scheme);
      choices.push_back({rows * (form.code_bytes(shape.back()) + form.scale_bytes(shape.back())),
                         cost.divergence * error});
    };
    for (const auto& [scheme, error] : cost.alternatives) put(scheme, error);
    matrix.schemes.push_back({});
    choices.push_back({plain.recipe.output().bytes(), 0});
    matrices_.push_back(std::move(matrix));
    choices_.push_back(std::move(choices));
  }

  std::optional<BudgetPlan> plan_for(uint64_t bytes, bool smallest) const {
    if (smallest) {
      for (const auto& choices : choices_) {
        bytes += std::ranges::min_element(choices, {}, &calibration::BitChoice::bytes)->bytes;
      }
    }
    const auto chosen = calibration::allocate_bits(choices_, bytes);
    if (!chosen) return std::nullopt;
    BudgetPlan plan;
    plan.linears = options_.quantize.linears;
    for (size_t i = 0; i < matrices_.size(); ++i) {
      const calibration::BitChoice& choice = choices_[i][(*chosen)[i]];
      const graph::LinearQuantization& scheme = matrices_[i].schemes[(*chosen)[i]];
      plan.matrices.push_back({matrices_[i].weight, scheme, choice.bytes, choice.cost});
      plan.divergence += choice.cost;
      if (scheme != options_.quantize.linears) plan.rules.push_back({matrices_[i].weight, scheme});
    }
    return plan;
  }

  static uint64_t size_of(const BudgetPlan& plan) {
    uint64_t bytes = 0;
    for (const BudgetedMatrix& matrix : plan.matrices) bytes += matrix.bytes;
    return bytes;
  }

  Status measure(BudgetPlan& plan) const {
    plan::ConvertOptions options = options_;
    options.adapters.clear();
    options.quantize.rules.insert(options.quantize.rules.end(), plan.rules.begin(),
                                  plan.rules.end());
    options.quantize.calibrated = factors_of(plan);
    const plan::Conversion conversion = FERRY_TRY(plan::plan_conversion(options, &pool_));
    plan.bytes = conversion.plan->total_bytes();
    return {};
  }

  // Returns what a calibration with this plan will choose, as far as it counts for the size: an
  // activation is not smoothed if one of its matrices is not quantised.
  std::shared_ptr<const graph::CalibratedWeights> factors_of(const BudgetPlan& plan) const {
    std::set<std::string> plain;
    for (const BudgetedMatrix& matrix : plan.matrices) {
      if (matrix.scheme.kind == Scheme::kNone) plain.insert(matrix.weight);
    }
    const auto is_plain = [&](const std::string& name) { return plain.contains(name); };
    graph::CalibratedWeights chosen = *chosen_;
    for (const LinearInput& input : smoothed_) {
      if (!is_plain(input.product) && std::ranges::none_of(input.weights, is_plain)) continue;
      for (const std::string& norm : input.norm) chosen.factors.erase(norm);
      for (const std::string& weight : input.weights) chosen.factors.erase(weight);
      chosen.rows.erase(input.product);
    }
    return std::make_shared<const graph::CalibratedWeights>(std::move(chosen));
  }

  const plan::ConvertOptions& options_;
  ThreadPool& pool_;
  std::shared_ptr<const graph::CalibratedWeights> chosen_;  // when costs were measured
  std::vector<LinearInput> smoothed_;
  std::vector<Matrix> matrices_;
  std::vector<std::vector<calibration::BitChoice>> choices_;  // of each matrix
};

}  // namespace

Result<Budget> read_budget(const std::string& text) {
  if (text.ends_with(kBitsPerWeight)) {
    double bits = 0;
    const char* const end = text.data() + text.size() - kBitsPerWeight.size();
    const auto read = std::from_chars(text.data(), end, bits, std::chars_format::fixed);
    if (read.ec == std::errc() && read.ptr == end && bits > 0 && bits <= 64) {
      return Budget{.bits_per_weight = bits};
    }
  } else if (const auto bytes = parse_size(text)) {
    return Budget{.bytes = *bytes};
  }
  return fail(ErrorCode::kUsage,
              fmt::format("{}: expected a size such as 105MB, or bits per weight such as 4.6bpw",
                          quoted(text)));
}

Result<BudgetPlan> plan_budget(const plan::ConvertOptions& options, const Budget& budget,
                               const Sequences& sequences, ThreadPool& pool,
                               const Progress& progress) {
  if (options.quantize.linears.kind != Scheme::k8da4w) {
    return fail_field(ErrorCode::kUsage, std::string(kOption),
                      ": needs --quantize 8da4w, from which it begins");
  }
  plan::ConvertOptions plain = options;
  plain.reference.clear();
  plain.adapters.clear();
  plain.quantize = {};
  const plan::Conversion unquantized = FERRY_TRY(plan::plan_conversion(plain, &pool));
  if (!unquantized.mapped.problems.empty()) {
    return Failure(
        converters::problems_error(unquantized.mapped.problems, *unquantized.mapped.source));
  }
  const std::map<std::string, const graph::Weight*> weights = weights_of(unquantized);
  uint64_t bytes = budget.bytes;
  if (budget.bits_per_weight > 0) {
    bytes = static_cast<uint64_t>(
        budget.bits_per_weight / 8 *
        static_cast<double>(weight_count(weights, *unquantized.mapped.source)));
  }
  std::vector<graph::LinearQuantization> coded = all_schemes();
  std::erase_if(coded, [](const auto& scheme) { return scheme.kind == Scheme::kNone; });
  MeasuredCosts costs =
      FERRY_TRY(measure_costs(options, some_of(sequences), std::move(coded), pool, progress));
  return Planner(options, std::move(costs), weights, pool).run(std::min(bytes, kLargestBudget));
}

std::string BudgetPlan::line() const {
  return fmt::format(
      "the bundle of the budget has {} bytes; {} of {} matrices have another scheme than {}; "
      "predicted KL divergence {:.4f}",
      bytes, rules.size(), matrices.size(), graph::name_of(linears), divergence);
}

std::string plan_text(const BudgetPlan& plan) {
  std::string text = fmt::format(
      "# A plan of ferry convert --quantize-budget for --quantize {}. The bundle has {} bytes.\n"
      "# Behind each scheme: the bytes of the matrix, and the predicted KL divergence of its "
      "codes\n"
      "# alone, in nats per token. The sum is {:.4f}.\n",
      graph::name_of(plan.linears), plan.bytes, plan.divergence);
  for (const BudgetedMatrix& matrix : plan.matrices) {
    // Matrices with the scheme of --quantize need no rule.
    text +=
        fmt::format("{}{}  # {} bytes, {:.2g}\n", matrix.scheme == plan.linears ? "# " : "",
                    plan::text_of({matrix.weight, matrix.scheme}), matrix.bytes, matrix.divergence);
  }
  return text;
}

}  // namespace ferry::proof
