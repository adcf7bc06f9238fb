#include "proof/measured_floors.h"

#include <algorithm>
#include <vector>

namespace ferry::proof {
namespace {

bool is_within(const ValueMetrics& metrics, double floor) {
  if (!metrics.finite) return false;
  return metrics.sqnr_db >= floor ||
         (metrics.noise_ratio && *metrics.noise_ratio <= kNoiseMultiple);
}

bool all_within(const std::vector<LayerResult>& layers) {
  return std::ranges::all_of(layers, &LayerResult::within);
}

}  // namespace

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
