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
      const auto [shorter, longer] = std::minmax({key.size(), candidate.size()});
      if (longer - shorter >= best_distance) continue;  // texts differ at least so much
      const size_t distance = edit_distance(key, candidate);
      if (distance < best_distance) {
        best_distance = distance;
        best = std::move(candidate);
      }
    }
  }
  return best;
}

ExpectedKeys::ExpectedKeys(const std::vector<KeyRule>& rules, const std::vector<bool>& matched)
    : rules_(rules), matched_(matched) {
  for (size_t r = 0; r < rules.size(); ++r) {
    for (const RuleTarget& made : rules[r].targets) {
      if (made.name.find('{') == std::string::npos) {
        exact_[made.name].push_back(r);
      } else {
        patterns_.push_back({KeyPattern(made.name), r});
      }
    }
  }
}

std::string ExpectedKeys::of(const std::string& target) const {
  std::vector<std::pair<size_t, KeyNumbers>> makers;  // rules that make the target
  if (const auto found = exact_.find(target); found != exact_.end()) {
    for (const size_t rule : found->second) makers.emplace_back(rule, KeyNumbers());
  }
  for (const auto& [pattern, rule] : patterns_) {
    if (auto numbers = pattern.match(target)) makers.emplace_back(rule, *std::move(numbers));
  }
  if (makers.empty()) return {};
  std::ranges::stable_sort(makers, {}, [](const auto& maker) { return maker.first; });
  size_t best = 0, best_likeness = 0;
  for (size_t i = 0; makers.size() > 1 && i < makers.size(); ++i) {
    const size_t likeness = likeness_to_matched(rules_, makers[i].first, matched_);
    if (i > 0 && likeness <= best_likeness) continue;
    best = i;
    best_likeness = likeness;
  }
  return fill_in(rules_[makers[best].first].source, makers[best].second);
}

}  // namespace ferry::converters
