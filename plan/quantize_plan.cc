#include "plan/quantize_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "core/file.h"
#include "core/text.h"

namespace ferry::plan {
namespace {

constexpr uint64_t kLargestPlan = 16 << 20;
constexpr std::string_view kLayers = "layers.", kWeight = ".weight";

// Splits "layers.3.attention.wv.weight" into "attention.wv" and 3.
std::pair<std::string, std::optional<int64_t>> kind_of(std::string_view weight) {
  if (weight.ends_with(kWeight)) weight.remove_suffix(kWeight.size());
  const size_t at = weight.find(kLayers);
  const size_t dot = at == weight.npos ? at : weight.find('.', at + kLayers.size());
  if (dot == weight.npos) return {std::string(weight), std::nullopt};
  const auto layer = number_after(weight.substr(0, dot), weight.substr(0, at + kLayers.size()));
  if (!layer) return {std::string(weight), std::nullopt};
  return {fmt::format("{}{}", weight.substr(0, at), weight.substr(dot + 1)), layer};
}

// Returns ascending numbers as "0, 3-7, 9".
std::string ranges_of(const std::vector<int64_t>& numbers) {
  std::vector<std::string> ranges;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    ranges.push_back(end == i + 1 ? fmt::format("{}", numbers[i])
                                  : fmt::format("{}-{}", numbers[i], numbers[end - 1]));
    i = end;
  }
  return fmt::format("{}", fmt::join(ranges, ", "));
}

}  // namespace

std::string text_of(const graph::QuantizeRule& rule) {
  return fmt::format("{}={}", rule.pattern, graph::name_of(rule.linear));
}

Result<std::vector<graph::QuantizeRule>> read_quantize_plan(const std::string& path) {
  const std::string text = FERRY_TRY(read_text_file(path, kLargestPlan));
  std::vector<graph::QuantizeRule> rules;
  std::string_view rest = text;
  for (int number = 1; !rest.empty(); ++number) {
    const std::string_view line = take_line(rest);
    const std::string_view rule = trimmed(line.substr(0, line.find('#')));
    if (rule.empty()) continue;
    auto read = read_rule(std::string(rule));
    if (!read) {
      return bad_input(
          fmt::format("{}: line {}: {}", printable(path), number, read.error().message));
    }
    rules.push_back(*std::move(read));
  }
  return rules;
}

std::vector<std::string> summary_of(const std::vector<graph::QuantizeRule>& rules) {
  // Layers by kind and scheme; none for a matrix outside of the layers.
  std::map<std::string, std::map<std::string, std::vector<int64_t>>> kinds;
  for (const graph::QuantizeRule& rule : rules) {
    const auto [kind, layer] = kind_of(rule.pattern);
    auto& layers = kinds[kind][graph::name_of(rule.linear)];
    if (layer) layers.push_back(*layer);
  }
  std::vector<std::string> lines;
  for (auto& [kind, schemes] : kinds) {
    std::vector<std::string> parts;
    for (auto& [scheme, layers] : schemes) {
      std::ranges::sort(layers);
      parts.push_back(layers.empty() ? scheme
                                     : fmt::format("{} in layers {}", scheme, ranges_of(layers)));
    }
    lines.push_back(fmt::format("{}: {}", kind, fmt::join(parts, "; ")));
  }
  return lines;
}

}  // namespace ferry::plan
