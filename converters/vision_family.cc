#include "converters/vision_family.h"

#include "converters/families/vision_families.h"

namespace ferry::converters {

std::span<const VisionFamily* const> all_vision_families() {
  static constexpr const VisionFamily* kTable[] = {
#define FERRY_VISION_FAMILY(name) &families::name::kFamily,
#include "converters/families/vision_families.def"
#undef FERRY_VISION_FAMILY
  };
  return kTable;
}

std::optional<VisionMatch> find_vision_family(std::string_view model_type) {
  for (const VisionFamily* family : all_vision_families()) {
    for (const VisionType& type : family->types) {
      if (type.name == model_type) return VisionMatch{family, &type};
    }
  }
  return std::nullopt;
}

}  // namespace ferry::converters
