// Declares the FamilySpec of every family in families.def.
#pragma once

#include "converters/family.h"

namespace ferry::converters::families {

#define FERRY_FAMILY(name)         \
  namespace name {                 \
  extern const FamilySpec kFamily; \
  }
#include "converters/families/families.def"
#undef FERRY_FAMILY

}  // namespace ferry::converters::families
