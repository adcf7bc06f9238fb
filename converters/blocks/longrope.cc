#include "converters/blocks/longrope.h"

#include <fmt/format.h>

namespace ferry::converters {

std::optional<int64_t> longrope_switch(const RopeConfig& rope, const BuildOptions& options) {
  if (rope.type != RopeConfig::Type::kLongRope || rope.factors == rope.long_factors ||
      options.context_length <= rope.original_max_positions) {
    return std::nullopt;
  }
  return rope.original_max_positions;
}

std::string longrope_note(int64_t limit, const BuildOptions& options) {
  const bool can_tell = options.prefill_length > limit;
  return fmt::format(
      "RoPE (longrope): a sequence of more than {} tokens has other factors from its first token "
      "on; ferry follows the length of the whole sequence, a runner that gives plain positions is "
      "right {}",
      limit,
      can_tell ? std::string("for prompts of any length, but not for text that grows beyond it")
               : fmt::format("up to it (for longer prompts too with a prefill length of {})",
                             limit + 1));
}

}  // namespace ferry::converters
