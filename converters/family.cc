#include "converters/family.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {

FamilyTable all_families() {
  static constexpr const FamilySpec* kTable[] = {
#define FERRY_FAMILY(name) &families::name,
#include "converters/families/families.def"
#undef FERRY_FAMILY
  };
  return kTable;
}

std::vector<KeyRule> key_rules(const FamilySpec& family, const ModelConfig& config) {
  std::vector<KeyRule> rules;
  for (const Component& component : family.components) {
    for (const std::string& prefix : component.prefixes) {
      rules = concat({rules, component.rules(config, prefix)});
    }
    for (const std::string& head : component.heads) rules.push_back(head_rule(head));
  }
  for (const DroppedKeys& keys : family.dropped) {
    rules.push_back(drop_rule(keys.pattern, keys.reason));
  }
  return rules;
}

std::optional<FamilyMatch> find_family(FamilyTable families, std::string_view model_type) {
  if (model_type.empty()) return std::nullopt;
  for (const FamilySpec* family : families) {
    for (const ModelType& type : family->types) {
      if (type.name == model_type) return FamilyMatch{family, &type, false};
      if (type.wrapper.name == model_type) return FamilyMatch{family, &type, true};
    }
  }
  return std::nullopt;
}

std::string supported_types(FamilyTable families) {
  std::vector<std::string_view> types;
  for (const FamilySpec* family : families) {
    for (const ModelType& type : family->types) {
      types.push_back(type.name);
      if (!type.wrapper.name.empty()) types.push_back(type.wrapper.name);
    }
  }
  std::ranges::sort(types);
  return fmt::format("{}", fmt::join(types, ", "));
}

}  // namespace ferry::converters
