#include "proof/measured_floors.h"

#include <algorithm>
#include <vector>

namespace ferry::proof {
namespace {

bool all_within(const std::vector<LayerResult>& layers) {
  return std::ranges::all_of(layers, &LayerResult::within);
}

}  // namespace

void MeasuredFloors::judge(ParityReport& report) const {
  const auto judge_layers = [&](std::vector<LayerResult>& layers) {
    for (LayerResult& layer : layers) {
      const auto found = tensors.find(layer.tensor.name);
      layer.floor_db = found == tensors.end() ? logits : found->second;
      layer.within = layer.metrics.finite && layer.metrics.sqnr_db >= *layer.floor_db;
    }
    return all_within(layers);
  };
  const auto logits_within = [&](const LogitMetrics& metrics) {
    return metrics.values.finite && metrics.values.sqnr_db >= logits;
  };
  for (CaseReport& one : report.cases) {
    if (one.skipped.empty()) one.parity = judge_layers(one.layers) && logits_within(one.worst());
  }
  report.logits_floor_db = logits;
  report.measured_floors = true;
  report.bounds.measured = false;
  report.parity = judge_layers(report.layers) && logits_within(report.metrics);
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
