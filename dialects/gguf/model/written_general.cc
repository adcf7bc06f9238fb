// The keys `general.*` about a model: how to sample (in both directions), and how large it is.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/json.h"
#include "dialects/gguf/model/written_keys.h"

namespace ferry::converters {
namespace {

// Numbers of generation_config.json.
struct SamplingRow {
  const char* config;
  const char* key;
  bool whole;
};
constexpr SamplingRow kSampling[] = {
    {"top_k", "general.sampling.top_k", true},
    {"top_p", "general.sampling.top_p", false},
    {"min_p", "general.sampling.min_p", false},
    {"xtc_probability", "general.sampling.xtc_probability", false},
    {"xtc_threshold", "general.sampling.xtc_threshold", false},
    {"temperature", "general.sampling.temp", false},
    {"penalty_last_n", "general.sampling.penalty_last_n", true},
    {"repetition_penalty", "general.sampling.penalty_repeat", false},
    {"mirostat", "general.sampling.mirostat", true},
    {"mirostat_tau", "general.sampling.mirostat_tau", false},
    {"mirostat_eta", "general.sampling.mirostat_eta", false},
};

}  // namespace

Status add_gguf_sampling(const std::string& generation_text, std::vector<GgufKeyValue>& keys) {
  if (generation_text.empty()) return {};
  const nlohmann::json generation =
      FERRY_TRY(parse_json(generation_text, "generation_config.json"));
  for (const SamplingRow& row : kSampling) {
    const auto found = generation.find(row.config);
    if (found == generation.end() || !found->is_number()) continue;
    if (row.whole) {
      keys.push_back({row.key, static_cast<int32_t>(found->get<int64_t>())});
    } else {
      keys.push_back({row.key, static_cast<float>(found->get<double>())});
    }
  }
  return {};
}

Status read_gguf_sampling(const nlohmann::json& metadata, const std::string& name,
                          nlohmann::json& generation) {
  constexpr std::string_view kDrawing[] = {"temperature", "top_k", "top_p", "min_p"};
  bool draws = false;
  for (const SamplingRow& row : kSampling) {
    const auto found = metadata.find(row.key);
    if (found == metadata.end()) continue;
    const bool is_right = row.whole ? found->is_number_integer()
                                    : found->is_number() && std::abs(found->get<double>()) <= 1e9;
    if (!is_right) {
      return bad_input(
          fmt::format("{}: '{}' is no {}", name, row.key, row.whole ? "integer" : "number"));
    }
    // The shortest text of the f32 is the number that the author wrote.
    const auto number = static_cast<float>(found->get<double>());
    generation[row.config] =
        row.whole ? *found
                  : nlohmann::json(std::strtod(fmt::format("{}", number).c_str(), nullptr));
    draws = draws || std::ranges::count(kDrawing, row.config) > 0;
  }
  if (draws) generation["do_sample"] = true;
  return {};
}

std::string gguf_size_label(std::span<const GgufNamedShape> tensors) {
  double shared = 0, of_expert = 0;  // exact below 2^53
  int64_t experts = 0, stacks = 0;
  for (const GgufNamedShape& tensor : tensors) {
    double count = 1;
    for (const int64_t size : tensor.shape) count *= static_cast<double>(size);
    const bool stack = tensor.name.find("_exps.") != tensor.name.npos && tensor.shape.size() >= 3;
    if (!stack) {
      shared += count;
      continue;
    }
    of_expert += count / static_cast<double>(tensor.shape[0]);
    experts += tensor.shape[0];
    ++stacks;
  }
  const double total = shared + of_expert;
  constexpr std::pair<double, char> kUnits[] = {{1e12, 'T'}, {1e9, 'B'}, {1e6, 'M'}};
  double scale = 1e3;
  char unit = 'K';
  for (const auto& [above, letter] : kUnits) {
    if (total <= above) continue;
    scale = above;
    unit = letter;
    break;
  }
  const double scaled = total * (1 / scale);
  const double rounded = std::nearbyint(scaled);
  const int digits = rounded == 0 ? 2 : rounded < 10 ? 1 : 0;
  const std::string size = fmt::format("{:.{}f}{}", scaled, digits, unit);
  return stacks > 0 ? fmt::format("{}x{}", experts / stacks, size) : size;
}

}  // namespace ferry::converters
