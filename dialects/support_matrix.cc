#include "dialects/support_matrix.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "converters/families/families.h"
#include "converters/family.h"

namespace ferry::converters {
namespace {

std::string cell(const std::set<std::string_view>& names) {
  return names.empty() ? "-" : fmt::format("{}", fmt::join(names, ", "));
}

std::string row_of(const FamilySpec& family) {
  std::vector<std::string_view> types;
  std::set<std::string_view> read, written, keras, vision;
  for (const ModelType& type : family.types) {
    types.push_back(type.name);
    if (!type.wrapper.name.empty()) types.push_back(type.wrapper.name);
    for (const VisionFamily* tower : all_vision_families()) {
      if (std::ranges::count(tower->text_types, type.name) == 0) continue;
      for (const VisionType& outer : tower->types) {
        const bool other = outer.sections != nullptr && outer.text_type != type.name;
        if (!other) vision.insert(outer.name);
      }
    }
  }
  for (const GgufArchitecture& architecture : family.gguf) {
    read.insert(architecture.name);
    if (!architecture.keys.empty()) written.insert(architecture.name);
  }
  for (const FamilySpec* other : all_families()) {
    for (const GgufArchitecture& architecture : other->gguf) {
      if (architecture.name != family.gguf_shared) continue;
      read.insert(architecture.name);
      if (!architecture.keys.empty()) written.insert(architecture.name);
    }
  }
  for (const KerasArchitecture& architecture : family.keras) {
    keras.insert(architecture.classes.begin(), architecture.classes.end());
  }
  return fmt::format("| {} | {} | {} | {} | {} | {} |\n", fmt::join(types, ", "), cell(read),
                     cell(written), cell(keras), family.meta ? "yes" : "-", cell(vision));
}

}  // namespace

std::string support_matrix() {
  std::vector<std::string> rows;
  for (const FamilySpec* family : all_families()) rows.push_back(row_of(*family));
  std::ranges::sort(rows);
  std::string text =
      "| model_type | GGUF read | GGUF written | KerasHub class | params.json | with images |\n"
      "|---|---|---|---|---|---|\n";
  for (const std::string& row : rows) text += row;
  return text;
}

}  // namespace ferry::converters
