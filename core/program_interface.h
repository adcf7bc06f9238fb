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

// Inputs of a component that each of its programs may ask for. All other inputs of a program that
// is not the first are outputs or inputs of the programs before it.
constexpr bool is_component_input(std::string_view port) {
  return port == kTokensPort || port == kInputPosPort;
}

}  // namespace ferry
