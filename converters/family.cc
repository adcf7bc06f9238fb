#include "converters/family.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "converters/families/families.h"
#include "core/text.h"

namespace ferry {

const std::vector<const FamilySpec*>& all_families() {
  static const std::vector<const FamilySpec*> table = {
      &families::kCodegen, &families::kGemma,   &families::kGemma2,    &families::kGemma3,
      &families::kGlm,     &families::kGranite, &families::kLfm2,      &families::kLlama,
      &families::kMistral, &families::kOlmo2,   &families::kPhi3,      &families::kQwen2,
      &families::kQwen3,   &families::kQwen35,  &families::kQwen3Next, &families::kSmollm3,
  };
  return table;
}

Result<const FamilySpec*> find_family(const ModelConfig& config) {
  std::vector<std::string> known;
  for (const FamilySpec* family : all_families()) {
    for (const std::string& type : family->model_types) {
      if (type == config.text_type || type == config.model_type) {
        FERRY_CHECK(family->check(config));
        return family;
      }
      known.push_back(type);
    }
  }
  std::ranges::sort(known);
  return fail(ErrorCode::kUnsupported,
              fmt::format("config.json: model_type {} is not supported; supported are {}",
                          quoted(config.text_type), fmt::join(known, ", ")));
}

}  // namespace ferry
