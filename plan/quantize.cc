#include "plan/quantize.h"

#include <fmt/format.h>

#include "core/text.h"

namespace ferry::plan {

Result<graph::QuantizedModel> Quantizer::apply(graph::Model model) {
  if (!options_.quantizes()) return graph::QuantizedModel{std::move(model), "", {}};
  graph::QuantizedModel quantized =
      FERRY_TRY(graph::quantize_weights(std::move(model), options_, source_));
  used_rules_.insert(quantized.used_rules.begin(), quantized.used_rules.end());
  if (options_.method == graph::ScaleMethod::kHqq) {
    FERRY_RETURN_IF_ERROR(settle_rounds(quantized.model.weights));
  }
  return quantized;
}

Status Quantizer::settle_rounds(graph::StateDict& weights) {
  for (const graph::Weight& listed : weights.weights()) {
    graph::Recipe& recipe = weights.find(listed.name)->recipe;
    if (!recipe.is_coded() || recipe.steps.back().kind != graph::Step::Kind::kQuantize) continue;
    recipe.steps.back().scheme.rounds = FERRY_TRY(graph::count_hqq_rounds(recipe, source_, pool_));
  }
  return {};
}

Status Quantizer::check_rules() const {
  for (size_t i = 0; i < options_.rules.size(); ++i) {
    if (used_rules_.contains(i)) continue;
    return fail_field(
        ErrorCode::kUsage, "quantize-rule",
        fmt::format(" {}: matches no linear weight", quoted(options_.rules[i].pattern)));
  }
  return {};
}

}  // namespace ferry::plan
