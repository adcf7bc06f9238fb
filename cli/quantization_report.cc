#include "cli/quantization_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace ferry::cli {
namespace {

using proof::QuantizationError;
using proof::SquaredError;

constexpr size_t kShownTensors = 8;
constexpr size_t kSchemeWidth = 44;

SquaredError total_of(const std::vector<QuantizationError>& errors) {
  SquaredError total;
  for (const QuantizationError& error : errors) total.add(error.sums);
  return total;
}

std::vector<const QuantizationError*> worst_first(const std::vector<QuantizationError>& errors) {
  std::vector<const QuantizationError*> order;
  for (const QuantizationError& error : errors) order.push_back(&error);
  std::ranges::stable_sort(order, {}, [](const auto* error) { return error->sums.sqnr_db(); });
  return order;
}

std::string layer_name(int64_t layer) {
  return layer < 0 ? "outside of layers" : fmt::format("layer {}", layer);
}

std::string weight_line(const QuantizationError& error, size_t name_width) {
  return fmt::format("  {:{}}  {:{}}  SQNR {:5.1f} dB  worst group {} of row {}: {:.1f} %\n",
                     error.name, name_width, error.scheme, kSchemeWidth, error.sums.sqnr_db(),
                     error.worst.group, error.worst.row, 100 * error.worst.relative);
}

}  // namespace

std::string quantization_lines(const std::vector<QuantizationError>& errors) {
  if (errors.empty()) return {};
  std::string text =
      fmt::format("quantised weights: {}, SQNR {:.1f} dB against the checkpoint's values\n",
                  errors.size(), total_of(errors).sqnr_db());
  for (const auto& [layer, sums] : proof::by_layer(errors)) {
    text += fmt::format("  {:18} SQNR {:5.1f} dB\n", layer_name(layer), sums.sqnr_db());
  }
  std::vector<const QuantizationError*> order = worst_first(errors);
  order.resize(std::min(order.size(), kShownTensors));
  size_t width = 0;
  for (const auto* error : order) width = std::max(width, error->name.size());
  text += fmt::format("the {} that lose most{}:\n", order.size(),
                      errors.size() > order.size() ? " (all with --json)" : "");
  for (const auto* error : order) text += weight_line(*error, width);
  return text;
}

void write_quantization(JsonWriter& json, const std::vector<QuantizationError>& errors) {
  if (errors.empty()) return;
  json.key("quantization").begin_object();
  json.member("sqnr_db", total_of(errors).sqnr_db()).key("layers").begin_array();
  for (const auto& [layer, sums] : proof::by_layer(errors)) {
    json.begin_object().member("layer", layer).member("values", sums.values);
    json.member("sqnr_db", sums.sqnr_db()).end_object();
  }
  json.end_array().key("weights").begin_array();
  for (const QuantizationError& error : errors) {
    json.begin_object().member("name", error.name).member("scheme", error.scheme);
    json.member("layer", error.layer).member("values", error.sums.values);
    json.member("sqnr_db", error.sums.sqnr_db()).key("worst_group").begin_object();
    json.member("row", error.worst.row).member("group", error.worst.group);
    json.member("relative_error", error.worst.relative).end_object().end_object();
  }
  json.end_array().end_object();
}

}  // namespace ferry::cli
