// Names that a program and whoever runs it agree on: roles of components, methods, and ports of the
// text decoder. What builds, stores, checks and runs programs takes them from here.
#pragma once

#include <string_view>

namespace ferry {

// Behind the name of a KV cache of i8 rows: its buffers of scales and zero points.
inline constexpr const char* kCacheScales = "_scales";
inline constexpr const char* kCacheZeroPoints = "_zero_points";

// The component that turns tokens into logits. Every bundle has one, or a text encoder, which turns
// them into states.
inline constexpr std::string_view kTextDecoderRole = "text_decoder";
inline constexpr std::string_view kTextEncoderRole = "text_encoder";
// Of vision-language models: pixels to rows for the text decoder, and tokens to such rows. Their
// text decoder takes embeddings instead of tokens.
inline constexpr std::string_view kVisionEncoderRole = "vision_encoder";
inline constexpr std::string_view kTokenEmbeddingRole = "token_embedding";

// Program styles. A stateful program keeps its caches in mutable buffers. A static one has fixed
// shapes; its caches, masks and positions are inputs and outputs (ExecuTorch's static llama).
inline constexpr std::string_view kStatefulStyle = "stateful";
inline constexpr std::string_view kStaticStyle = "static";
// Takes a whole text in one call and keeps nothing between calls: the style of text encoders.
inline constexpr std::string_view kEncoderStyle = "encoder";

// The method of the stateful text decoder: (tokens, input_pos) -> logits. That of the text encoder:
// (tokens) -> (last_hidden_state), or (last_hidden_state, sentence_embedding).
inline constexpr std::string_view kForwardMethod = "forward";
// The methods of the static text decoder: one token or, for lookahead decoding, a few; and
// prefill_length tokens.
inline constexpr std::string_view kKvForwardMethod = "kv_forward";
inline constexpr std::string_view kPrefillForwardMethod = "prefill_forward";
// Those of the token embedding that go with them. All other components have forward only.
inline constexpr std::string_view kEmbeddingKvMethod = "tok_embedding_kv_forward";
inline constexpr std::string_view kEmbeddingPrefillMethod = "tok_embedding_prefill_forward";

inline constexpr std::string_view kTokensPort = "tokens";               // i64 [1,T]
inline constexpr std::string_view kInputPosPort = "input_pos";          // i64 [1]
inline constexpr std::string_view kHiddenStatesPort = "hidden_states";  // f32 [1,T,hidden_size]
// Of vision-language models. One image or tile is one call of the vision encoder.
inline constexpr std::string_view kEmbeddingsPort = "embeddings";         // f32 [1,T,hidden_size]
inline constexpr std::string_view kPixelValuesPort = "pixel_values";      // f32 [1,3,H,W]
inline constexpr std::string_view kImageFeaturesPort = "image_features";  // f32 [1,N,hidden_size]
inline constexpr std::string_view kLogitsPort = "logits";                 // f32 [1,V] or [1,T,V]
// Of text encoders: the states after the final norm, and what the modules behind them make of them.
inline constexpr std::string_view kLastHiddenStatePort = "last_hidden_state";     // f32 [1,T,width]
inline constexpr std::string_view kSentenceEmbeddingPort = "sentence_embedding";  // f32 [1,D]

// Of static programs. tokens and input_pos are i32 [1,A] there, logits [1,A,V], where A is the
// number of tokens of a call. S is the context length, C = S - A. G kv heads, D head_dim. A port of
// a cache or state ends with the number of its layer. docs/static_programs.md describes all of
// them.
inline constexpr std::string_view kAttentionMaskPort = "attention_mask";  // [1,1,A,S], additive
inline constexpr std::string_view kWindowMaskPort = "window_mask";        // of sliding layers
inline constexpr std::string_view kKCachePort = "k_cache_";               // [1,G,D,C]
inline constexpr std::string_view kVCachePort = "v_cache_";               // [1,G,C,D]
inline constexpr std::string_view kNewKPort = "new_k_";                   // output [1,G,D,A]
inline constexpr std::string_view kNewVPort = "new_v_";                   // output [1,G,A,D]
inline constexpr std::string_view kConvStatePort = "conv_state_";  // f32; out: "new_" before it
inline constexpr std::string_view kRecurrentStatePort = "recurrent_state_";  // f32; the same

// Precedes the name of a state where it is an output.
inline constexpr std::string_view kNewStatePrefix = "new_";
// A method without inputs of programs with a window_mask: the positions that a window has.
inline constexpr std::string_view kSlidingWindowMethod = "get_sliding_window";

// Whether `port` is one of those that begin with `stem` and end with the number of a layer.
constexpr bool is_layer_port(std::string_view port, std::string_view stem) {
  return port.starts_with(stem) && port.size() > stem.size() &&
         port.find_first_not_of("0123456789", stem.size()) == std::string_view::npos;
}

// Inputs of a component that each of its programs may ask for. All other inputs of a program that
// is not the first are outputs or inputs of the programs before it.
constexpr bool is_component_input(std::string_view port) {
  return port == kTokensPort || port == kEmbeddingsPort || port == kInputPosPort ||
         port == kAttentionMaskPort || port == kWindowMaskPort ||
         is_layer_port(port, kKCachePort) || is_layer_port(port, kVCachePort) ||
         is_layer_port(port, kConvStatePort) || is_layer_port(port, kRecurrentStatePort);
}

}  // namespace ferry
