#include "converters/keys/nearest_key.h"

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

}  // namespace ferry::converters
