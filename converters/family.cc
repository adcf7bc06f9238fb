#include "converters/family.h"

#include <fmt/format.h>

#include <algorithm>

#include "converters/config/model_types.h"
#include "converters/families/families.h"
#include "core/text.h"

namespace ferry::converters {

const std::vector<const FamilySpec*>& all_families() {
  static const std::vector<const FamilySpec*> table = {
      &families::kCodegen, &families::kGemma,   &families::kGemma2,   &families::kGemma3,
      &families::kGlm,     &families::kGranite, &families::kLfm2,     &families::kLlama,
      &families::kMistral, &families::kOlmo2,   &families::kPhi3,     &families::kQwen2,
      &families::kQwen3,   &families::kQwen35,  &families::kQwen3Moe, &families::kQwen3Next,
      &families::kSmollm3,
  };
  return table;
}

Result<const FamilySpec*> find_family(const ModelConfig& config, const std::string& name) {
  for (const std::string& type : {config.text_type, config.model_type}) {
    for (const FamilySpec* family : all_families()) {
      if (std::ranges::count(family->model_types, type) > 0) return family;
    }
  }
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: 'model_type' is {}: not supported; supported are {}", name,
                          quoted(config.text_type), supported_types()));
}

}  // namespace ferry::converters
