// DecoderContext: the values that all layers of a decoder share. make_decoder_context() makes it
// once, before the first layer.
#pragma once

#include <optional>
#include <string>

#include "converters/blocks/blocks.h"
#include "converters/build_options.h"
#include "converters/config/model_config.h"

namespace ferry::converters {

// The value of masked scores. It is finite, so that a softmax computed block by block gives no NaN
// for a block whose keys are all masked. exp(-65535 - maximum) is exactly zero in f32.
inline constexpr float kMaskedScore = -65535.0F;

// cos and sin of RoPE at this call's positions: f32 [T,1,rotary_dim], in a static program
// [1,T,1,rotary_dim]. The first half of sin is negated.
struct RopeTable {
  ValueId cos = {}, sin = {};
};

// The keys that the queries of a call may attend to, where a mask selects them.
struct KeyRange {
  graph::IntArg start = 0;  // position of the first key
  Dim keys = {};            // number of keys; the last key is at the last position of the call
  // Additive, f32 [T, keys], or [kv heads, heads of each, T, keys] with a bias; invalid: every key
  // is seen.
  ValueId mask = {};
};

// The values that the attention layers of one kind, full or sliding, share.
struct AttentionKind {
  RopeTable rope = {};        // for keys
  RopeTable query_rope = {};  // for queries: equal to `rope` unless they grow with the position
  // If absent, the attention operator masks causally, or not at all where tokens attend both ways.
  std::optional<KeyRange> range = {};
  ValueId mask = {};  // static program: additive, f32 [1,1,T,context_length]
  // static program: added to scores before the mask, f32 [kv heads, heads of each, T,
  // context_length]; invalid: there is none
  ValueId bias = {};
};

class StaticPorts;

struct DecoderContext {
  const ModelConfig& config;
  const BuildOptions& options;
  // Inputs and outputs of a static program; nullptr in other programs.
  StaticPorts* ports = nullptr;
  std::string prefix = {};  // of the names of tables, where a program has two such parts
  Dim tokens = {};          // T, the number of tokens of a call
  ValueId token_ids = {};   // encoder: i64 [1,T]
  // An encoder of several texts: the number of the text and the position in it, for each token, and
  // the last token of each text: i64 [1,T], [1,T] and [1,N]. Invalid in other programs.
  ValueId text_ids = {}, position_ids = {}, last_tokens = {};
  ValueId token_types = {};  // encoder of pairs of texts: i64 [1,T]; invalid: all are 0
  // Position of the first token; 0 in an encoder. Static programs do not use it.
  graph::IntArg start_pos = 0;
  ValueId end_pos = {};  // Int: start_pos + T; unused in static programs
  // Int: the end of the written positions of the caches. end_pos unless they hold a ring.
  ValueId cache_end = {};
  // Caches that hold a ring (ring_cache.h): what RoPE turns every token of the call by, i64 [T],
  // and its slot, i64 [1,T]. Invalid in other programs.
  ValueId rope_places = {}, write_slots = {};
  // N: the written positions of the caches, as many as end_pos says. Set where something reads a
  // slice of them.
  Dim written = {};
  // i64 []: start_pos, or -1 - start_pos if the caller states that the sequence needs the long
  // factors of longrope. Valid only in a program that has both sets of factors.
  ValueId signed_start = {};
  ValueId is_start = {};  // bool [], true when the call begins a sequence
  // i64 [1,T]: the position behind the last token that each token attends to. Invalid where tokens
  // attend to no later ones.
  ValueId attention_end = {};
  // i64 [3,T]: positions in three dimensions (RopeConfig::axes). Invalid where there is one.
  ValueId rope_positions = {};
  // i64 [1,T], in a static program i32: the tokens of embeddings, for layers with inputs of their
  // own. Invalid in other programs.
  ValueId layer_tokens = {};
  // f32 [1,T,hidden_size]: those of rows that state their places. Invalid for other inputs.
  ValueId embeddings = {};
  // f32 [K,T,hidden_size]: added to the outputs of the first K layers. Invalid where there is none.
  ValueId deepstack = {};
  Dim encoded = {};  // rows of the audio encoder that cross-attention attends to
  // i64 [T, keys]: the rows of tables of biases by distance, where each layer has its own.
  ValueId bias_rows = {};
  // If the window is at least context_length, sliding attention equals full attention.
  AttentionKind full = {}, sliding = {};
  // Multiplies the queries of layers without RoPE: f32 [T,1,1], in a static program [1,T,1,1].
  // Invalid where they do not grow within the context.
  ValueId query_growth = {};

  const AttentionKind& kind_of(int64_t layer) const {
    const LayerType type = config.layer_types[static_cast<size_t>(layer)];
    return type == LayerType::kSlidingAttention ? sliding : full;
  }
};

// Returns the position of every token of the call: i64 [T].
ValueId call_positions(GraphBuilder& b, const DecoderContext& c);

// A member of ModelConfig::numbers: 1 where every head has an attention sink, kSlidingSinks where
// those of layers with a window have one.
inline constexpr const char* kAttentionSinks = "attention_sinks";
inline constexpr int64_t kSlidingSinks = 2;
// A member of ModelConfig::numbers: 1 where the scores of layer N are also divided by N + 1.
inline constexpr const char* kScoresByLayer = "scale_attn_by_inverse_layer_idx";
// Returns the sinks of layer `layer`, f32 [heads]; an invalid value for a layer without sinks.
ValueId attention_sinks(GraphBuilder& b, const DecoderContext& c, int64_t layer);

// The inputs of a stateful program that say where its tokens are. Those beside input_pos are as in
// DecoderContext.
struct PlaceInputs {
  ValueId input_pos;  // i64 [1]
  ValueId attention_end = {};
  ValueId rope_positions = {};
  ValueId rows = {};  // f32 [1,T,row width], where they state their places
};
// Returns DecoderContext::written, which it sets where it is not. A program has one.
Dim written_positions(GraphBuilder& b, DecoderContext& c);

// Makes the context of a stateful program. `token_symbol` is T.
DecoderContext make_decoder_context(GraphBuilder& b, const ModelConfig& config,
                                    const BuildOptions& options, const PlaceInputs& places,
                                    int32_t token_symbol);

// The inputs of an encoder. Those of several texts are as in DecoderContext.
struct EncoderInputs {
  ValueId token_ids = {};  // i64 [1,T]
  int32_t tokens = 0;      // T
  ValueId text_ids = {}, position_ids = {}, last_tokens = {};
  ValueId token_types = {};
  std::string prefix = {};
};
// Makes the context of an encoder, all of whose layers have attention.
DecoderContext make_encoder_context(GraphBuilder& b, const ModelConfig& config,
                                    const BuildOptions& options, const EncoderInputs& inputs);

// Makes the context of a method of a static program, which takes `tokens` tokens.
DecoderContext make_static_context(GraphBuilder& b, const ModelConfig& config,
                                   const BuildOptions& options, StaticPorts& ports, int64_t tokens);

// Rotates the first dimensions of every head of x [1,T,heads,head_dim], as many as the table has.
ValueId rope(GraphBuilder& b, const RopeTable& table, ValueId x);

}  // namespace ferry::converters
