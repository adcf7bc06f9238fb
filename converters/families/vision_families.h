// Declares the VisionFamily of every family in vision_families.def.
#pragma once

#include "converters/family.h"

namespace ferry::converters::families {

#define FERRY_VISION_FAMILY(name)    \
  namespace name {                   \
  extern const VisionFamily kFamily; \
  }
#include "converters/families/vision_families.def"
#undef FERRY_VISION_FAMILY

}  // namespace ferry::converters::families
