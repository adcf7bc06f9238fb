// Names that a program and its callers agree on: roles of components, methods, and inputs and
// outputs of the text decoder. Everything that builds, stores, checks and runs programs takes them
// from here.
#pragma once

#include <cstdint>
#include <string_view>

namespace ferry {

inline constexpr std::string_view kKvCacheName = ".attention.kv_cache.";  // in names of KV caches
// The steps between the positions of rows that state their places, f32 [1,context_length,1,1].
inline constexpr std::string_view kRopeStepsName = "rope_steps";
// Returns whether a buffer holds a row for every position, which later calls write again.
constexpr bool is_cache_name(std::string_view buffer) {
  return buffer == kRopeStepsName || buffer.find(kKvCacheName) != std::string_view::npos;
}
// These suffixes follow the name of a KV cache of i8 rows, for its buffers of scales and zero
// points.
inline constexpr const char* kCacheScales = "_scales";
inline constexpr const char* kCacheZeroPoints = "_zero_points";

// The text decoder turns tokens into logits; the text encoder turns tokens into states. Every
// bundle has one of the two, or an audio encoder alone.
inline constexpr std::string_view kTextDecoderRole = "text_decoder";
inline constexpr std::string_view kTextEncoderRole = "text_encoder";
// Vision-language models also have a vision encoder, which turns pixels into rows for the text
// decoder, and a token embedding, which turns tokens into such rows. Their text decoder takes
// embeddings instead of tokens.
inline constexpr std::string_view kVisionEncoderRole = "vision_encoder";
inline constexpr std::string_view kTokenEmbeddingRole = "token_embedding";
// Models of speech also have an audio encoder, which turns log-mel frames or samples into the keys
// and values of the cross-attention of their text decoder. Language models that hear have one that
// makes rows for the text decoder, and a token embedding. Where there is no decoder, it gives the
// outputs of labels for each row of the sound, and its programs are of the kind encoder.
inline constexpr std::string_view kAudioEncoderRole = "audio_encoder";
// Encoder-decoders have a source encoder, which turns the tokens of a text into the keys and values
// of the cross-attention of their text decoder.
inline constexpr std::string_view kSourceEncoderRole = "source_encoder";

// Program kinds. A stateful program keeps its caches in mutable buffers. A static program has fixed
// shapes; its caches, masks and positions are inputs and outputs (ExecuTorch's static llama).
inline constexpr std::string_view kStatefulStyle = "stateful";
inline constexpr std::string_view kStaticStyle = "static";
// An encoder takes a whole text in one call and keeps nothing between calls. Text encoders are of
// this kind.
inline constexpr std::string_view kEncoderStyle = "encoder";

// The method of the stateful text decoder: (tokens, input_pos) -> logits. The method of the text
// encoder: (tokens) -> (last_hidden_state), or (last_hidden_state, sentence_embedding), or of a
// classifier (tokens[, token_types]) -> (last_hidden_state, class_logits or token_logits).
inline constexpr std::string_view kForwardMethod = "forward";
// A text encoder may have this method too, which takes several texts of any lengths behind each
// other: (tokens, text_ids, position_ids, last_tokens[, token_types]) -> the outputs of forward,
// for all of them.
inline constexpr std::string_view kForwardTextsMethod = "forward_texts";
// The methods of the static text decoder. kv_forward takes one token or, for lookahead decoding, a
// few; the other takes prefill_length tokens.
inline constexpr std::string_view kKvForwardMethod = "kv_forward";
inline constexpr std::string_view kPrefillForwardMethod = "prefill_forward";
// The methods of the token embedding that belong to those of the static text decoder. All other
// components have forward only.
inline constexpr std::string_view kEmbeddingKvMethod = "tok_embedding_kv_forward";
inline constexpr std::string_view kEmbeddingPrefillMethod = "tok_embedding_prefill_forward";

inline constexpr std::string_view kTokensPort = "tokens";       // i64 [1,T]
inline constexpr std::string_view kInputPosPort = "input_pos";  // i64 [1]
// Stateful text decoders in which the rows of an image attend to each other in both directions have
// this input: for each token the position behind the last one that it attends to, i64 [1,T]. It is
// position + 1 for a token of text. All rows of an image are tokens of one call.
inline constexpr std::string_view kAttentionEndPort = "attention_end";
// Stateful text decoders whose images have places in three dimensions have this input: the position
// of each token in time, in height and in width, i64 [3,T]. The three are equal for a token of
// text.
inline constexpr std::string_view kRopePositionsPort = "rope_positions";
// Text decoders whose layers have inputs of their own for each token, beside the embeddings of a
// vision-language model, have this input: the tokens, i64 [1,T], in a static program i32 [1,A].
inline constexpr std::string_view kLayerTokensPort = "layer_tokens";
inline constexpr std::string_view kHiddenStatesPort = "hidden_states";  // f32 [1,T,hidden_size]
// Vision-language models have these. One image or tile is one call of the vision encoder. A tile
// may be a list of P patches instead, of which `spatial_shapes` states the rows and the columns;
// the patches behind them are padding, and so are the features behind theirs.
// Rows of one program of all components may be wider than hidden_size: they state their places
// (converters/blocks/placed_rows.h). `pixel_values` f32 [1,3,H,W] may be those of pictures of one
// shape; `image_features` may then have a row of text behind each row of blocks.
inline constexpr std::string_view kEmbeddingsPort = "embeddings";     // f32 [1,T,hidden_size]
inline constexpr std::string_view kPixelValuesPort = "pixel_values";  // f32 [1,3,H,W] or [1,P,V]
inline constexpr std::string_view kSpatialShapesPort = "spatial_shapes";  // i64 [1,2]
inline constexpr std::string_view kImageFeaturesPort = "image_features";  // f32 [1,N,hidden_size]
// A vision encoder for images of any shape takes the patches of one image instead. M is the number
// of its blocks of merge_size^2 patches, each of which becomes a row of features; N = M
// merge_size^2; P is the values of a patch. Patches and features are in the order of
// core/image_grid.h.
//   pixel_values      f32 [1,M,merge_size^2 P]
//   patch_positions   i64 [2,N]: row and column of each patch
//   patch_windows     i64 [1,N]: the window of each patch, where layers have windows
//   position_rows     i64 [4,N]: rows of the table of learned positions, where there is one
//   position_weights  f32 [4,N]: their weights
inline constexpr std::string_view kPatchPositionsPort = "patch_positions";
inline constexpr std::string_view kPatchWindowsPort = "patch_windows";
inline constexpr std::string_view kPositionRowsPort = "position_rows";
inline constexpr std::string_view kPositionWeightsPort = "position_weights";
// An output of such an encoder, f32 [K,M,hidden_size], and an input of its text decoder, f32
// [K,T,hidden_size]: what the outputs of the first K layers get added; zeros for tokens of text.
inline constexpr std::string_view kDeepstackPort = "deepstack_features";
// Models of speech have these: frames or samples, of which any number up to the bound. The keys and
// values are outputs of the audio encoder and inputs of the text decoder; the number of the
// decoder's layer follows.
// f32 [1,mels,frames], or [1,frames,mels] of an audio encoder alone
inline constexpr std::string_view kInputFeaturesPort = "input_features";
inline constexpr std::string_view kInputValuesPort = "input_values";  // f32 [1,samples]
// Or its output is rows of the text decoder, whose embeddings are then an input: N for each window.
inline constexpr std::string_view kAudioFeaturesPort = "audio_features";  // f32 [1,N,hidden_size]

// An encoder whose output takes the place of placeholders among the embeddings of the text decoder,
// with the names of its ports and probes.
struct RowEncoder {
  std::string_view role, input, output;
  std::string_view states;      // a number follows: the input of that layer
  std::string_view last_state;  // behind the last layer
};
inline constexpr RowEncoder kPictureRows = {kVisionEncoderRole, kPixelValuesPort,
                                            kImageFeaturesPort, "vision_hidden_states.",
                                            "vision_last_hidden_state"};
inline constexpr RowEncoder kSoundRows = {kAudioEncoderRole, kInputFeaturesPort, kAudioFeaturesPort,
                                          "encoder_hidden_states.", "encoder_last_hidden_state"};

// The fewest samples that input_values may have: those of which convolutions make one row.
inline constexpr int64_t kLeastSamples = 895;
// The input of a source encoder, whose outputs are keys and values as those of an audio encoder.
inline constexpr std::string_view kSourceIdsPort = "source_ids";  // i64 [1,S]
inline constexpr std::string_view kCrossKPort = "cross_k_";       // f32 [1,N,heads,head_dim]
inline constexpr std::string_view kCrossVPort = "cross_v_";       // f32 [1,N,heads,head_dim]
inline constexpr std::string_view kLogitsPort = "logits";         // f32 [1,V] or [1,T,V]
// Text encoders have these outputs: the states after the final norm, and the result of the pooling
// modules behind it.
inline constexpr std::string_view kLastHiddenStatePort = "last_hidden_state";     // f32 [1,T,width]
inline constexpr std::string_view kSentenceEmbeddingPort = "sentence_embedding";  // f32 [1,D]
// Classifiers have one of these instead: outputs of the labels for the text, or for each token.
inline constexpr std::string_view kClassLogitsPort = "class_logits";  // f32 [1,labels]
inline constexpr std::string_view kTokenLogitsPort = "token_logits";  // f32 [1,T,labels]
// An input of classifiers that tell the texts of a pair apart: 0 for tokens of the first text, 1
// for those of the second.
inline constexpr std::string_view kTokenTypesPort = "token_types";  // i64 [1,T]

// forward_texts has these inputs for T tokens of N texts. Its sentence_embedding is [N,D],
// its class_logits [N,labels].
inline constexpr std::string_view kTextIdsPort = "text_ids";          // i64 [1,T]: 0, 0, 0, 1, ...
inline constexpr std::string_view kPositionIdsPort = "position_ids";  // i64 [1,T]: 0, 1, 2, 0, ...
inline constexpr std::string_view kLastTokensPort = "last_tokens";    // i64 [1,N]: 2, ...

// Static programs have these inputs and outputs. Their tokens and input_pos are i32 [1,A] and their
// logits [1,A,V]. A is the number of tokens of a call, S the context length, C = S - A, G the
// number of KV heads, D head_dim. The name of a cache or state ends with the number of its layer.
// docs/static_programs.md describes all of them.
inline constexpr std::string_view kAttentionMaskPort = "attention_mask";  // [1,1,A,S], additive
inline constexpr std::string_view kWindowMaskPort = "window_mask";  // for sliding-window layers
inline constexpr std::string_view kKCachePort = "k_cache_";         // [1,G,D,C]
inline constexpr std::string_view kVCachePort = "v_cache_";         // [1,G,C,D]
inline constexpr std::string_view kNewKPort = "new_k_";             // output [1,G,D,A]
inline constexpr std::string_view kNewVPort = "new_v_";             // output [1,G,A,D]
inline constexpr std::string_view kConvStatePort = "conv_state_";   // f32
inline constexpr std::string_view kRecurrentStatePort = "recurrent_state_";  // f32

// This prefix precedes the name of a convolution or recurrent state that is an output.
inline constexpr std::string_view kNewStatePrefix = "new_";
// A method without inputs, which programs with a window_mask have: it returns the number of
// positions of a window.
inline constexpr std::string_view kSlidingWindowMethod = "get_sliding_window";

// A method without inputs, which static programs have whose masks must let the rows of an image
// attend to each other in both directions: it says which masks, both or window_mask alone.
inline constexpr std::string_view kTwoWayImagesMethod = "get_two_way_images";
inline constexpr int64_t kTwoWayInAll = 1, kTwoWayInWindows = 2;

// Returns whether `port` is `stem` followed by the number of a layer.
constexpr bool is_layer_port(std::string_view port, std::string_view stem) {
  return port.starts_with(stem) && port.size() > stem.size() &&
         port.find_first_not_of("0123456789", stem.size()) == std::string_view::npos;
}

// Inputs of a component that each of its programs may have. Any other input of a program that is
// not the first is an output or an input of an earlier program.
constexpr bool is_component_input(std::string_view port) {
  return port == kTokensPort || port == kEmbeddingsPort || port == kInputPosPort ||
         port == kAttentionEndPort || port == kRopePositionsPort || port == kDeepstackPort ||
         port == kLayerTokensPort || port == kTextIdsPort || port == kPositionIdsPort ||
         port == kLastTokensPort || port == kTokenTypesPort || port == kAttentionMaskPort ||
         port == kWindowMaskPort || is_layer_port(port, kKCachePort) ||
         is_layer_port(port, kVCachePort) || is_layer_port(port, kConvStatePort) ||
         is_layer_port(port, kRecurrentStatePort) || is_layer_port(port, kCrossKPort) ||
         is_layer_port(port, kCrossVPort);
}

}  // namespace ferry
