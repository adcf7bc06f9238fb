// Names that a program and whoever runs it agree on: roles of components, methods, and ports of the
// text decoder. What builds, stores, checks and runs programs takes them from here.
#pragma once

#include <string_view>

namespace ferry {

// The component that turns tokens into logits. Every bundle has one.
inline constexpr std::string_view kTextDecoderRole = "text_decoder";

// The method of the stateful text decoder: (tokens, input_pos) -> logits.
inline constexpr std::string_view kForwardMethod = "forward";

inline constexpr std::string_view kTokensPort = "tokens";               // i64 [1,T]
inline constexpr std::string_view kInputPosPort = "input_pos";          // i64 [1]
inline constexpr std::string_view kHiddenStatesPort = "hidden_states";  // f32 [1,T,hidden_size]
inline constexpr std::string_view kLogitsPort = "logits";               // f32 [1,V] or [1,T,V]

// The methods of a static text decoder. Each takes a fixed number of tokens (AR) in a context of a
// fixed number of positions (CL), of which C = CL - AR are cached; caches are inputs, and the new
// columns are outputs: (tokens i32 [1,AR], masks, input_pos i32 [1,AR], caches) -> (logits
// [1,AR,V], new columns).
inline constexpr std::string_view kKvForwardMethod = "kv_forward";  // a token, or a lookahead
inline constexpr std::string_view kPrefillForwardMethod = "prefill_forward";

inline constexpr std::string_view kAttentionMaskPort = "attention_mask";  // [1,1,AR,CL]
inline constexpr std::string_view kWindowMaskPort = "window_mask";        // [1,1,AR,CL]
// Prefixes of the ports of layer N, "k_cache_N". A layer has G key heads of D elements.
inline constexpr std::string_view kKCachePort = "k_cache_";  // [1,G,D,C], the time is last
inline constexpr std::string_view kVCachePort = "v_cache_";  // [1,G,C,D]
inline constexpr std::string_view kNewKPort = "new_k_";      // [1,G,D,AR]
inline constexpr std::string_view kNewVPort = "new_v_";      // [1,G,AR,D]
// Of recurrent layers: the state before the call, and after it under the name with "new_" before.
inline constexpr std::string_view kConvStatePort = "conv_state_";
inline constexpr std::string_view kRecurrentStatePort = "recurrent_state_";
inline constexpr std::string_view kNewStatePrefix = "new_";

// A method without inputs of programs with a window_mask: the positions that a window has.
inline constexpr std::string_view kSlidingWindowMethod = "get_sliding_window";

// Inputs of a component that each of its programs may ask for. All other inputs of a program that
// is not the first are outputs or inputs of the programs before it.
constexpr bool is_component_input(std::string_view port) {
  return port == kTokensPort || port == kInputPosPort;
}

}  // namespace ferry
