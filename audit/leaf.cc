#include "audit/leaf.h"

#include <array>

namespace ferry::audit {

std::string_view name_of(LeafKind kind) {
  constexpr std::array<std::string_view, 11> kNames = {
      "weight",  "constant", "buffer_init", "program",   "delegate", "header",
      "padding", "manifest", "tokenizer",   "reference", "other"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace ferry::audit
