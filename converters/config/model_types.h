// What a model_type means beyond the keys of its config. Not a public header.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "converters/config/json_fields.h"

namespace ferry::converters {

// Which layers have a sliding window where layer_types does not list them.
enum class WindowRule {
  kNever,       // all attention is full, whatever the config says about windows
  kAll,         // every layer, where sliding_window is set
  kAllIfUsed,   // every layer, where use_sliding_window is set too
  kFromLayer,   // layers from max_window_layers on, where use_sliding_window is set
  kPattern,     // all but every sliding_window_pattern-th layer
  kWhereNoRope  // layers without RoPE, where use_sliding_window is set
};

// Which numbers beside the weights the type knows (ScalarConfig).
enum class ScalarRule {
  kNone,
  kGemma,   // embeddings times sqrt(hidden_size)
  kGemma2,  // the same; query_pre_attn_scalar and both softcaps
  kGemma3,  // the same without the softcap of scores
  kGranite  // the four multipliers
};

// Which layers have experts instead of an MLP.
enum class ExpertRule {
  kNever,
  kListed,  // every decoder_sparse_step-th layer that mlp_only_layers does not list
  kAll      // every layer; there is no other MLP, and scores are always scaled
};

// Which kinds of RoPE scaling the type's configuration class accepts.
enum class RopeRule {
  kNone,     // CodeGen: frequencies are fixed, no key is read
  kShared,   // one RoPE for all layers
  kByLayer,  // Gemma 3: one for full attention, one for sliding attention
  kPhi3      // shared; default or longrope, which it also calls su and yarn
};

// What transformers' configuration class and model of a type read. A key that a type does not read
// has no meaning there: it changes nothing, and is reported as unused.
struct TypeTraits {
  std::string_view type;
  // The defaults of the configuration class for keys that a config may leave out, as a JSON object.
  // A key that is there and null keeps its null.
  std::string_view defaults = "{}";
  std::span<const KeyNames> names = {};
  std::string_view activation_key = "hidden_act";  // empty: silu, whatever the config says
  int64_t mlp_ratio = 0;  // intermediate_size over hidden_size where it is not stated; 0: must be
  RopeRule rope = RopeRule::kShared;
  bool partial_rope = false;  // reads partial_rotary_factor; others turn whole heads
  WindowRule window = WindowRule::kNever;
  bool lists_layers = false;    // reads layer_types
  bool attention_bias = false;  // reads attention_bias
  bool qkv_bias = false;        // q, k and v always have a bias
  bool mlp_bias = false;        // reads mlp_bias
  bool bidirectional = false;   // reads use_bidirectional_attention
  bool hybrid = false;          // linear attention but for every full_attention_interval-th layer
  bool convs = false;           // layer types are full attention and short convolutions
  bool nope = false;            // some layers have no RoPE (no_rope_layers, no_rope_layer_interval)
  ScalarRule scalars = ScalarRule::kNone;
  ExpertRule experts = ExpertRule::kNever;
  bool shared_expert = false;  // beside the routed ones
};

// A multimodal type whose text part is supported; its config has that part under text_config.
struct WrapperTraits {
  std::string_view type;
  std::string_view text_type;
  bool tied = false;  // tie_word_embeddings of the outer config, where it does not say
};

// nullptr for a type that no family serves.
const TypeTraits* find_type(std::string_view type);
const WrapperTraits* find_wrapper(std::string_view type);

// "codegen, gemma, ..."; the types that a config's model_type may have.
std::string supported_types();

// Keys of configs that never change what a text decoder computes: notes, training, sampling, the
// parts of a multimodal model that are left out. They are not reported as unused.
bool is_inert_key(std::string_view key);

}  // namespace ferry::converters
