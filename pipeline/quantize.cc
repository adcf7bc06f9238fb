#include "pipeline/quantize.h"

#include <fmt/format.h>

#include "core/text.h"

namespace ferry::pipeline {

Result<graph::QuantizedModel> Quantizer::apply(graph::Model model) {
  if (!options_.quantizes()) return graph::QuantizedModel{std::move(model), "", {}};
  graph::QuantizedModel quantized =
      FERRY_TRY(graph::quantize_weights(std::move(model), options_, source_));
  used_rules_.insert(quantized.used_rules.begin(), quantized.used_rules.end());
  if (options_.method != graph::ScaleMethod::kHqq) return quantized;
  for (const std::string& name : quantized.model.weights.names()) {
    graph::Recipe& recipe = quantized.model.weights.find(name)->recipe;
    FERRY_RETURN_IF_ERROR(graph::settle_hqq_rounds(recipe, source_, pool_));
  }
  return quantized;
}

Status Quantizer::check_rules() const {
  for (size_t i = 0; i < options_.rules.size(); ++i) {
    if (used_rules_.contains(i)) continue;
    return fail(ErrorCode::kUsage, fmt::format("--quantize-rule {}: matches no linear weight",
                                               quoted(options_.rules[i].pattern)));
  }
  return {};
}

}  // namespace ferry::pipeline
