// How a static program decodes. Every mode gives the same tokens, if what is cached is what the
// call that computed it saw: with caches of f32, or programs that round before they attend.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ferry::runner {

enum class DecodeMode {
  kKv,         // every token by kv_forward
  kHybrid,     // prompts by prefill_forward
  kLookahead,  // the same, and several tokens from one call of kv_forward
};

inline constexpr std::string_view kDecodeModeNames[] = {"kv", "hybrid", "lookahead"};
constexpr std::string_view name_of(DecodeMode mode) {
  return kDecodeModeNames[static_cast<int>(mode)];
}

// Guesses of the tokens that follow (runner/static_program/lookahead.h).
struct LookaheadOptions {
  int64_t ngram = 3, window = 2, gcap = 2;
  uint64_t seed = 0;  // of the first guesses; has no effect on the output
};

struct DecodeOptions {
  // Without a value: kHybrid where a static program has prefill_forward, else kKv.
  std::optional<DecodeMode> mode = {};
  LookaheadOptions lookahead = {};
};

}  // namespace ferry::runner
