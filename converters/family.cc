#include "converters/family.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "converters/families/families.h"
#include "converters/vision_family.h"
#include "core/text.h"

namespace ferry::converters {

FamilyTable all_families() {
  static constexpr const FamilySpec* kTable[] = {
#define FERRY_FAMILY(name) &families::name::kFamily,
#include "converters/families/families.def"
#undef FERRY_FAMILY
  };
  return kTable;
}

std::optional<FamilyMatch> find_family(FamilyTable families, std::string_view model_type,
                                       std::string_view text_type) {
  if (model_type.empty()) return std::nullopt;
  std::optional<FamilyMatch> wrapped;
  for (const FamilySpec* family : families) {
    for (const ModelType& type : family->types) {
      if (type.name == model_type) return FamilyMatch{family, &type, false};
      if (type.wrapper.name != model_type) continue;
      if (!wrapped || type.name == text_type) wrapped = FamilyMatch{family, &type, true};
    }
  }
  return wrapped;
}

std::vector<std::string_view> supported_types(FamilyTable families) {
  std::vector<std::string_view> types;
  for (const FamilySpec* family : families) {
    for (const ModelType& type : family->types) {
      types.push_back(type.name);
      if (!type.wrapper.name.empty()) types.push_back(type.wrapper.name);
    }
  }
  const std::vector<std::string_view> text_types = types;
  for (const VisionFamily* family : all_vision_families()) {
    const bool has_decoder =
        std::ranges::find_first_of(text_types, family->text_types) != text_types.end();
    if (!has_decoder) continue;
    for (const VisionType& type : family->types) types.push_back(type.name);
  }
  std::ranges::sort(types);
  types.erase(std::unique(types.begin(), types.end()), types.end());
  return types;
}

std::string nearest_types(FamilyTable families, std::string_view model_type) {
  constexpr size_t kShown = 5, kLongest = 64;
  std::vector<std::string_view> types = supported_types(families);
  const std::string_view given = model_type.substr(0, kLongest);
  // A common beginning counts for more than letters that happen to be equal.
  const auto distance = [&](std::string_view type) {
    const auto [end, other] = std::ranges::mismatch(given, type);
    const auto common = static_cast<size_t>(end - given.begin());
    const size_t edits = edit_distance(given, type);
    return static_cast<int64_t>(edits) - 2 * static_cast<int64_t>(common);
  };
  std::ranges::stable_sort(types, {}, distance);
  if (types.size() <= kShown + 1) return fmt::format("{}", fmt::join(types, ", "));
  const size_t more = types.size() - kShown;
  types.resize(kShown);
  return fmt::format("{} and {} more (README.md lists them)", fmt::join(types, ", "), more);
}

}  // namespace ferry::converters
