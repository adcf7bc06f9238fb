#include "cli/suggestion.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "cli/other_names.h"
#include "core/text.h"

namespace ferry::cli {
namespace {

// Returns the shortest name that begins with `word`, such as --temperature for --temp; else the
// longest name with which `word` begins, such as --max-new for --max-new-tokens; else nullptr.
const std::string* same_beginning(const std::string& word, const std::vector<std::string>& names) {
  constexpr size_t kLeast = 5;  // the length of --out
  const std::string *longer = nullptr, *shorter = nullptr;
  for (const std::string& name : names) {
    if (std::min(name.size(), word.size()) < kLeast) continue;
    if (name.starts_with(word) && (longer == nullptr || name.size() < longer->size())) {
      longer = &name;
    }
    if (word.starts_with(name) && (shorter == nullptr || name.size() > shorter->size())) {
      shorter = &name;
    }
  }
  return longer != nullptr ? longer : shorter;
}

}  // namespace

std::string suggestion(const std::string& given, const std::vector<std::string>& names) {
  constexpr size_t kLongest = 40;
  if (given.empty() || given.size() > kLongest) return {};
  for (const std::string_view known : our_names(given)) {
    if (std::ranges::count(names, known) > 0) return fmt::format(" (did you mean {}?)", known);
  }
  const std::string word = lower_case(given);
  size_t best_distance = word.size() / 3 + 1;
  const std::string* best = nullptr;
  for (const std::string& name : names) {
    const size_t distance = edit_distance(word, name);
    if (distance > best_distance || (best == nullptr && distance == best_distance)) continue;
    // Among names with equal distance, one with the first letter of the word wins.
    if (distance == best_distance && name[0] != word[0]) continue;
    best_distance = distance;
    best = &name;
  }
  // A common beginning is a better hint than a distance of two letters or more.
  if (best == nullptr || best_distance > 1) {
    if (const std::string* same = same_beginning(word, names)) best = same;
  }
  return best == nullptr ? std::string() : fmt::format(" (did you mean {}?)", *best);
}

}  // namespace ferry::cli
