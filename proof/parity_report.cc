#include "proof/parity_report.h"

#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace ferry::proof {
namespace {

// Returns the worst result of each layer tensor over all prompts, in model order.
std::vector<LayerResult> worst_layers(const std::vector<CaseReport>& cases, int64_t num_layers) {
  std::map<std::string, LayerResult> by_name;
  for (const CaseReport& c : cases) {
    for (const LayerResult& layer : c.layers) {
      const auto [at, fresh] = by_name.emplace(layer.tensor.name, layer);
      if (fresh) continue;
      at->second.metrics = worse(at->second.metrics, layer.metrics);
      at->second.within = at->second.within && layer.within;
    }
  }
  std::vector<LayerResult> layers;
  for (const CaseReport& c : cases) {
    for (const LayerResult& layer : c.layers) {
      if (layer.tensor.kind != ReferenceTensor::Kind::kVision) continue;
      const auto found = by_name.find(layer.tensor.name);
      if (found == by_name.end()) continue;
      layers.push_back(found->second);
      by_name.erase(found);
    }
  }
  for (const ReferenceTensor& tensor : reference_tensors(num_layers)) {
    const auto found = by_name.find(tensor.name);
    if (found != by_name.end()) layers.push_back(found->second);
  }
  return layers;
}

bool is_within(const ValueMetrics& metrics, double floor) {
  if (!metrics.finite) return false;
  return metrics.sqnr_db >= floor ||
         (metrics.noise_ratio && *metrics.noise_ratio <= kNoiseMultiple);
}

bool all_within(const std::vector<LayerResult>& layers) {
  return std::ranges::all_of(layers, &LayerResult::within);
}

}  // namespace

LogitMetrics CaseReport::worst() const {
  LogitMetrics all = worse(worse(prefill, steps), greedy);
  double agreeing = 0;
  for (const LogitMetrics& part : {prefill, steps, greedy}) {
    agreeing += part.top1_agreement * static_cast<double>(part.rows);
  }
  if (all.rows > 0) all.top1_agreement = agreeing / static_cast<double>(all.rows);
  if (all.rows == 0 && !layers.empty()) all.values = layers.back().metrics;
  return all;
}

void CaseReport::judge(const ParityBounds& bounds) {
  for (const LayerResult& layer : layers) {
    if (layer.metrics.count == 0) not_compared.push_back(layer.tensor.name);
  }
  std::erase_if(layers, [](const LayerResult& layer) { return layer.metrics.count == 0; });
  const bool greedy_ok = greedy_match == greedy_total || greedy_tie;
  const LogitMetrics logits = worst();
  const bool logits_ok = logits.rows == 0 || bounds.logits_within(logits.values);
  parity = logits_ok && greedy_ok && std::ranges::all_of(layers, &LayerResult::within);
}

std::string ParityReport::output() const {
  return has_logits() || layers.empty() ? "logits" : layers.back().tensor.name;
}

std::optional<double> noise_bound(const ValueMetrics& metrics) {
  return metrics.noise_ratio ? std::optional(kNoiseMultiple * metrics.noise) : std::nullopt;
}

std::optional<double> noise_margin(const ValueMetrics& metrics) {
  if (!metrics.noise_ratio) return std::nullopt;
  return *metrics.noise_ratio > 0 ? std::min(kNoiseMultiple / *metrics.noise_ratio, kBeyondAnyBound)
                                  : kBeyondAnyBound;
}

void ParityReport::forget_greedy() {
  greedy_match = greedy_total = 0;
  for (CaseReport& one : cases) one.greedy_match = one.greedy_total = 0;
}

std::optional<double> ParityReport::output_limit() const {
  if (bounds.measured || metrics.values.noise_ratio) return std::nullopt;
  if (has_logits() || layers.empty()) return bounds.max_abs;
  return bounds.limit(layers.back().tensor, layers.back().metrics.scale);
}

std::optional<Divergence> first_divergence(const ParityReport& report) {
  for (const LayerResult& layer : report.layers) {
    if (!layer.within) return Divergence{layer.tensor.layer, layer.tensor.name};
  }
  if (report.parity) return std::nullopt;
  return Divergence{report.bounds.layers, "logits"};
}

Result<ParityReport> summarize(std::vector<CaseReport> cases, const ParityBounds& bounds,
                               const std::string& reference) {
  ParityReport report;
  report.bounds = bounds;
  bool any = false;
  for (const CaseReport& one : cases) {
    if (!one.skipped.empty()) continue;
    report.metrics = any ? worse(report.metrics, one.worst()) : one.worst();
    report.greedy_match += one.greedy_match;
    report.greedy_total += one.greedy_total;
    report.routing.choices += one.routing.choices;
    report.routing.different += one.routing.different;
    report.parity = report.parity && one.parity;
    any = true;
  }
  report.cases = std::move(cases);
  if (!any) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: every prompt {}", reference, report.cases[0].skipped));
  }
  report.layers = worst_layers(report.cases, bounds.layers);
  const auto floor = [&](const ValueMetrics& values, std::optional<double> db) {
    return bounds.measured || values.noise_ratio ? std::nullopt : db;
  };
  for (LayerResult& layer : report.layers) {
    layer.floor_db = floor(layer.metrics, bounds.floor_db(layer.tensor));
  }
  report.logits_floor_db = floor(report.metrics.values, bounds.logits_floor_db());
  report.first_divergence = first_divergence(report);
  return report;
}

void MeasuredFloors::judge(ParityReport& report) const {
  const auto judge_layers = [&](std::vector<LayerResult>& layers) {
    for (LayerResult& layer : layers) {
      const auto found = tensors.find(layer.tensor.name);
      layer.floor_db = found == tensors.end() ? logits : found->second;
      layer.within = is_within(layer.metrics, *layer.floor_db);
    }
    return all_within(layers);
  };
  for (CaseReport& one : report.cases) {
    if (one.skipped.empty())
      one.parity = judge_layers(one.layers) && is_within(one.worst().values, logits);
  }
  report.logits_floor_db = logits;
  report.measured_floors = true;
  report.bounds.measured = false;
  report.parity = judge_layers(report.layers) && is_within(report.metrics.values, logits);
  report.first_divergence = first_divergence(report);
}

MeasuredFloors floors_of_noise(const ParityReport& noise) {
  MeasuredFloors floors{.logits = noise.metrics.values.sqnr_db - kOneRowDb, .tensors = {}};
  for (const LayerResult& layer : noise.layers) {
    floors.tensors[layer.tensor.name] = layer.metrics.sqnr_db - kOneRowDb;
  }
  return floors;
}

}  // namespace ferry::proof
