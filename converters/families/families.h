// The families, one file each beside this header. A new one is its file, a line here and a line in
// the table in converters/family.cc.
#pragma once

#include "converters/family.h"

namespace ferry::families {

extern const FamilySpec kLlama;
extern const FamilySpec kMistral;
extern const FamilySpec kQwen2;
extern const FamilySpec kQwen3;
extern const FamilySpec kQwen35;
extern const FamilySpec kQwen3Moe;
extern const FamilySpec kQwen3Next;

}  // namespace ferry::families
