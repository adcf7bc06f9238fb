// AttentionSink: sequences without an end in caches of a fixed size. A token attends to the first
// tokens of the sequence, the sink, and to the last ones, the window. The positions of a cache, its
// slots, are those of the sink and then a ring, which is twice as long as the window, so that the
// tokens of a call replace none that they attend to. Source: ExecuTorch,
// examples/models/llama/source_transformation/attention_sink.py (arXiv 2309.17453).
#pragma once

#include <cstdint>

namespace ferry {

struct AttentionSink {
  int64_t sink = 0;    // tokens at the beginning of a sequence; at least 1
  int64_t window = 0;  // tokens that each token attends to behind them, itself included
  // Tokens behind the sink after which RoPE begins to count anew; 0: those of the ring, as in the
  // source.
  int64_t rope_turn = 0;

  int64_t ring() const { return 2 * window; }
  int64_t slots() const { return sink + ring(); }
  // The tokens of a sequence that attend to all tokens before them, as in the model itself.
  int64_t exact_length() const { return sink + window; }
  bool operator==(const AttentionSink&) const = default;
};

// Both numbers are at most this, so that all sums of them fit.
inline constexpr int64_t kMostSinkTokens = int64_t{1} << 30;

// The positions of a sequence without an end: the greatest number that ExecuTorch's runners take
// for a context. At a hundred tokens a second it is eight months away.
inline constexpr int64_t kEndlessPositions = (int64_t{1} << 31) - 1;

}  // namespace ferry
