#include "dialects/gguf/model/architecture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "converters/family.h"

namespace ferry::converters {
namespace {

const std::vector<GgufArchitecture>& architectures() {
  static const std::vector<GgufArchitecture> all = [] {
    std::vector<GgufArchitecture> rows;
    for (const FamilySpec* family : all_families()) {
      for (GgufArchitecture row : family->gguf) {
        if (row.model_type.empty()) row.model_type = family->name();
        rows.push_back(std::move(row));
      }
    }
    for (const FamilySpec* family : all_families()) {
      for (GgufArchitecture& row : rows) {
        if (row.name == family->gguf_shared) row.other_types.push_back(family->name());
      }
    }
    return rows;
  }();
  return all;
}

}  // namespace

std::vector<const GgufArchitecture*> find_gguf_architectures(std::string_view name) {
  std::vector<const GgufArchitecture*> found;
  for (const GgufArchitecture& architecture : architectures()) {
    if (architecture.name == name) found.push_back(&architecture);
  }
  std::stable_partition(found.begin(), found.end(),
                        [](const GgufArchitecture* one) { return one->sign != GgufSign::kNone; });
  return found;
}

const GgufArchitecture* gguf_architecture_of(const ModelConfig& config) {
  const GgufArchitecture* found = nullptr;
  for (const GgufArchitecture& architecture : architectures()) {
    const bool of_model = architecture.model_type == config.text_type ||
                          std::ranges::count(architecture.other_types, config.text_type) > 0;
    const bool writes = architecture.writes == nullptr || architecture.writes(config);
    if (architecture.keys.empty() || !of_model || !writes) continue;
    if (architecture.wrapper == config.model_type) return &architecture;
    if (architecture.wrapper.empty() && found == nullptr) found = &architecture;
  }
  return found;
}

std::string gguf_architecture_names() {
  std::set<std::string_view> names;
  for (const GgufArchitecture& architecture : architectures()) names.insert(architecture.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace ferry::converters
