#include "audit/leaf.h"

#include <array>

namespace ferry::audit {
namespace {

constexpr std::array<std::string_view, kLeafKinds> kLeafNames = {
    "weight",   "constant",  "buffer_init", "program",  "delegate", "header",     "padding",
    "manifest", "tokenizer", "reference",   "metadata", "other",    "unaccounted"};
static_assert(kLeafNames.size() == static_cast<size_t>(LeafKind::kUnaccounted) + 1);

}  // namespace

std::string_view name_of(LeafKind kind) { return kLeafNames[static_cast<size_t>(kind)]; }

std::optional<LeafKind> kind_from_name(std::string_view name) {
  for (size_t i = 0; i < kLeafNames.size(); ++i) {
    if (kLeafNames[i] == name) return static_cast<LeafKind>(i);
  }
  return std::nullopt;
}

}  // namespace ferry::audit
