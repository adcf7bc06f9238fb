#include "converters/keys/key_hints.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "converters/keys/key_pattern.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

constexpr size_t kMaxSuggestionLength = 160;  // bytes of the unknown key

// Returns the layer number in `key`: its first number between "." or "_" and "." or "/"; "0" if
// there is none.
std::string layer_in(std::string_view key) {
  for (size_t at = 1; at < key.size(); ++at) {
    if (key[at - 1] != '.' && key[at - 1] != '_') continue;
    const std::string_view digits = leading_number(key.substr(at));
    const size_t end = at + digits.size();
    if (!digits.empty() && end < key.size() && (key[end] == '.' || key[end] == '/')) {
      return std::string(digits);
    }
  }
  return "0";
}

// Returns the similarity of rule `r` to the rules that keys of the checkpoint matched: the length
// of the longest common prefix of their sources, up to a dot; more than any if `r` itself was
// matched.
size_t likeness_to_matched(const std::vector<KeyRule>& rules, size_t r,
                           const std::vector<bool>& matched) {
  const std::string& source = rules[r].source;
  if (r < matched.size() && matched[r]) return source.size() + 1;
  size_t longest = 0;
  for (size_t m = 0; m < matched.size() && m < rules.size(); ++m) {
    if (!matched[m] || rules[m].kind == KeyRule::Kind::kDrop) continue;
    const auto differs = std::ranges::mismatch(source, rules[m].source).in1;
    const std::string_view shared(source.begin(), differs);
    longest = std::max(longest, shared.rfind('.') + 1);  // npos + 1 is 0
  }
  return longest;
}

}  // namespace

std::string nearest_key(const std::vector<KeyRule>& rules,
                        const std::unordered_map<std::string, std::string>& names,
                        const std::string& key) {
  if (key.size() > kMaxSuggestionLength) return {};
  std::string best;
  size_t best_distance = key.size() / 3 + 1;
  // The number in the key may not be that of a layer: some formats do not number the first layer.
  for (const std::string& layer : {layer_in(key), std::string("0")}) {
    for (const KeyRule& rule : rules) {
      if (rule.kind == KeyRule::Kind::kDrop) continue;
      std::string candidate = fill_in(rule.source, {layer, number_after(key, "experts.")});
      const auto stored = names.find(candidate);
      if (stored != names.end()) candidate = stored->second;
      const size_t distance = edit_distance(key, candidate);
      if (distance < best_distance) {
        best_distance = distance;
        best = std::move(candidate);
      }
    }
  }
  return best;
}

std::string expected_key(const std::vector<KeyRule>& rules, const std::string& target,
                         const std::vector<bool>& matched) {
  std::string best;
  size_t best_likeness = 0;
  for (size_t r = 0; r < rules.size(); ++r) {
    for (const RuleTarget& made : rules[r].targets) {
      const std::optional<KeyNumbers> numbers = KeyPattern(made.name).match(target);
      if (!numbers) continue;
      const size_t likeness = likeness_to_matched(rules, r, matched);
      if (!best.empty() && likeness <= best_likeness) continue;
      best = fill_in(rules[r].source, *numbers);
      best_likeness = likeness;
    }
  }
  return best;
}

}  // namespace ferry::converters
