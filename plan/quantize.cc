#include "plan/quantize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "core/text.h"

namespace ferry::plan {
namespace {

constexpr std::string_view kHead = "output.weight";

}  // namespace

bool share_tied_table(graph::QuantizeOptions& options, const converters::MappingReport& mapping) {
  using Kind = graph::LinearQuantization::Kind;
  const graph::EmbeddingQuantization whole_rows = {.bits = 8};
  const bool is_small = options.linears.kind == Kind::k8da4w || options.linears.kind == Kind::kKeep;
  if (!options.shares_tied_table || !is_small) return false;
  if (options.embeddings != whole_rows) return false;
  const auto is_tied_head = [](const converters::MappedEntry& entry) {
    return entry.source.empty() && std::ranges::count(entry.targets, kHead) > 0;
  };
  if (std::ranges::none_of(mapping.entries, is_tied_head)) return false;
  for (const graph::QuantizeRule& rule : options.rules) {
    if (graph::matches(rule.pattern, kHead)) return false;
  }
  options.rules.push_back({"output", {.kind = Kind::k8da8w}});
  return true;
}

Result<graph::QuantizedModel> Quantizer::apply(graph::Model model) {
  if (!options_.quantizes()) return graph::QuantizedModel{std::move(model), "", {}, {}, {}};
  graph::QuantizedModel quantized =
      FERRY_TRY(graph::quantize_weights(std::move(model), options_, source_));
  used_rules_.insert(quantized.used_rules.begin(), quantized.used_rules.end());
  for (const auto& [requested, schemes] : quantized.replaced) {
    for (const auto& [scheme, count] : schemes) replaced_[requested][scheme] += count;
  }
  kept_.matrices += quantized.kept.matrices;
  kept_.rounded += quantized.kept.rounded;
  kept_.plain += quantized.kept.plain;
  for (const auto& [scheme, count] : quantized.kept.requantised) {
    kept_.requantised[scheme] += count;
  }
  if (options_.method == graph::ScaleMethod::kHqq) {
    FERRY_RETURN_IF_ERROR(settle_rounds(quantized.model.weights));
  }
  if (options_.calibrated) take_calibrated(quantized.model.weights);
  return quantized;
}

Status Quantizer::settle_rounds(graph::StateDict& weights) {
  for (const graph::Weight& listed : weights.weights()) {
    graph::Recipe& recipe = weights.find(listed.name)->recipe;
    if (!recipe.is_coded() || recipe.steps.back().kind != graph::Step::Kind::kQuantize) continue;
    if (recipe.steps.back().scheme.method != graph::ScaleMethod::kHqq) continue;
    recipe.steps.back().scheme.rounds = FERRY_TRY(graph::count_hqq_rounds(recipe, source_, pool_));
  }
  return {};
}

void Quantizer::take_calibrated(graph::StateDict& weights) const {
  for (const auto& [name, factors] : options_.calibrated->factors) {
    if (graph::Weight* weight = weights.find(name)) weight->recipe.smooth(factors);
  }
  for (const auto& [name, factors] : options_.calibrated->rows) {
    if (graph::Weight* weight = weights.find(name)) weight->recipe.smooth_rows(factors);
  }
  for (const auto& [name, chosen] : options_.calibrated->codes) {
    graph::Weight* weight = weights.find(name);
    if (weight == nullptr || !weight->recipe.is_coded()) continue;
    graph::Step& step = weight->recipe.steps.back();
    if (step.kind != graph::Step::Kind::kQuantize) continue;
    step.scheme.method = graph::ScaleMethod::kCalibrated;
    step.chosen = chosen;
  }
}

std::string Quantizer::replaced_note() const {
  std::vector<std::string> replacements;
  for (const auto& [requested, schemes] : replaced_) {
    for (const auto& [scheme, count] : schemes) {
      replacements.push_back(fmt::format("{} instead of {} for {} {}", scheme, requested, count,
                                         count == 1 ? "matrix" : "matrices"));
    }
  }
  if (replacements.empty()) return {};
  return fmt::format("the group of a scale must divide a row: {}", fmt::join(replacements, ", "));
}

std::string Quantizer::kept_note() const {
  const auto are = [](int count, const char* rest) {
    return fmt::format("{} {} {}", count, count == 1 ? "matrix" : "matrices", rest);
  };
  std::vector<std::string> parts;
  if (kept_.matrices > 0) parts.push_back(are(kept_.matrices, "with the codes of the checkpoint"));
  if (kept_.rounded > 0) {
    parts.back() += fmt::format(" (the scales of {} rounded to bf16)", kept_.rounded);
  }
  for (const auto& [scheme, count] : kept_.requantised) {
    parts.push_back(are(count, "quantised anew, to ") + scheme);
  }
  if (kept_.plain > 0) parts.push_back(are(kept_.plain, "not quantised"));
  if (parts.empty()) return {};
  return fmt::format("keep: {}", fmt::join(parts, ", "));
}

Status Quantizer::check_rules() const {
  if (kept_.plain > 0 && kept_.matrices == 0 && kept_.requantised.empty()) {
    return fail_field(ErrorCode::kUsage, "quantize",
                      " keep: the checkpoint has no codes of the matrices that would keep them");
  }
  for (size_t i = 0; i < options_.rules.size(); ++i) {
    if (used_rules_.contains(i)) continue;
    return fail_field(
        ErrorCode::kUsage, "quantize-rule",
        fmt::format(" {}: matches no linear weight", quoted(options_.rules[i].pattern)));
  }
  return {};
}

}  // namespace ferry::plan
