// The families, one file each beside this header. A new one is its file, a line here and a line in
// the table in converters/family.cc.
#pragma once

#include "converters/family.h"

namespace ferry::converters::families {

extern const FamilySpec kCodegen;
extern const FamilySpec kGemma2;
extern const FamilySpec kGemma3;
extern const FamilySpec kGemma;
extern const FamilySpec kGlm;
extern const FamilySpec kGranite;
extern const FamilySpec kLfm2;
extern const FamilySpec kLlama;
extern const FamilySpec kMistral;
extern const FamilySpec kOlmo2;
extern const FamilySpec kPhi3;
extern const FamilySpec kQwen2;
extern const FamilySpec kQwen3;
extern const FamilySpec kQwen35;
extern const FamilySpec kQwen3Moe;
extern const FamilySpec kQwen3Next;
extern const FamilySpec kSmollm3;

}  // namespace ferry::converters::families
