#include "audit/leaf.h"

#include <array>

namespace ferry::audit {
namespace {

constexpr std::array<std::string_view, kLeafKinds> kNames = {
    "weight",   "constant",  "buffer_init", "program",  "delegate", "header",     "padding",
    "manifest", "tokenizer", "reference",   "metadata", "other",    "unaccounted"};
static_assert(kNames.size() == static_cast<size_t>(LeafKind::kUnaccounted) + 1);

}  // namespace

std::string_view name_of(LeafKind kind) { return kNames[static_cast<size_t>(kind)]; }

std::optional<LeafKind> kind_from_name(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<LeafKind>(i);
  }
  return std::nullopt;
}

}  // namespace ferry::audit
