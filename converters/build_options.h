// BuildOptions: what a user chooses about a program.
#pragma once

#include <cstdint>

namespace ferry::converters {

// Checked against the config by the caller: 1 <= prefill_length <= context_length <= max_positions.
struct BuildOptions {
  int64_t context_length = 0;  // positions of the KV caches
  int64_t prefill_length = 0;  // maximum number of tokens of one call
  bool all_logits = false;     // logits of all tokens, [1,T,V], instead of the last one, [1,V]
};

}  // namespace ferry::converters
