// Leaf: a range of bytes of a file, and what it is for.
#pragma once

#include <cstdint>
#include <string_view>

namespace ferry::audit {

enum class LeafKind {
  kWeight,
  kConstant,
  kBufferInit,
  kProgram,
  kDelegate,
  kHeader,
  kPadding,
  kManifest,
  kTokenizer,
  kReference,
  kOther
};
std::string_view name_of(LeafKind kind);

}  // namespace ferry::audit
