#include "proof/measured_floors.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

namespace ferry::proof {
namespace {

double amplitude(double sqnr_db) { return std::pow(10.0, -sqnr_db / 20); }

double floor_of_sum(double noise_db, std::optional<double> activations_db) {
  const double sum = amplitude(noise_db) + (activations_db ? amplitude(*activations_db) : 0);
  return -20 * std::log10(sum) - kOneRowDb;
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

MeasuredFloors floors_of_codes(const ParityReport& noise, const ParityReport& activations) {
  std::map<std::string, std::optional<double>> floors_of_activations;
  for (const LayerResult& layer : activations.layers) {
    floors_of_activations[layer.tensor.name] = layer.floor_db;
  }
  MeasuredFloors floors;
  floors.logits = floor_of_sum(noise.metrics.values.sqnr_db, activations.logits_floor_db);
  for (const LayerResult& layer : noise.layers) {
    const auto found = floors_of_activations.find(layer.tensor.name);
    floors.tensors[layer.tensor.name] = floor_of_sum(
        layer.metrics.sqnr_db,
        found == floors_of_activations.end() ? activations.logits_floor_db : found->second);
  }
  return floors;
}

}  // namespace ferry::proof
