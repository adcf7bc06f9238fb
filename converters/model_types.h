// What a model_type means beyond the keys of its config. Not a public header.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ferry {

// Which layers have a sliding window where layer_types does not list them.
enum class WindowRule {
  kNever,       // all attention is full, whatever the config says about windows
  kAll,         // every layer, where sliding_window is set
  kFromLayer,   // layers from max_window_layers on, where use_sliding_window is set
  kPattern,     // all but every sliding_window_pattern-th layer
  kWhereNoRope  // layers without RoPE, where use_sliding_window is set
};

// Which numbers beside the weights the type knows (ScalarConfig).
enum class ScalarRule {
  kNone,
  kGemma,   // embeddings times sqrt(hidden_size); query_pre_attn_scalar and the softcaps
  kGranite  // the four multipliers
};

// What a family calls a key that others call `meant`.
struct KeyAlias {
  const char* stated;
  const char* meant;
};

struct TypeTraits {
  std::string_view type;
  // The defaults of transformers' configuration class for keys that a config may leave out, as a
  // JSON object. A key that is there and null keeps its null.
  std::string_view defaults = "{}";
  std::span<const KeyAlias> aliases = {};
  int64_t mlp_ratio = 0;  // intermediate_size over hidden_size where it is not stated; 0: must be
  double partial_rotary_factor = 1.0;
  WindowRule window = WindowRule::kNever;
  bool qkv_bias = false;      // q, k and v always have a bias
  bool hybrid = false;        // linear attention but for every full_attention_interval-th layer
  bool convs = false;         // layer types may be short convolutions
  bool sliding_rope = false;  // sliding layers have a RoPE of their own, never scaled
  bool nope = false;          // some layers have no RoPE (no_rope_layers, no_rope_layer_interval)
  ScalarRule scalars = ScalarRule::kNone;
};

// nullptr for a type that no family serves.
const TypeTraits* find_type(std::string_view type);

}  // namespace ferry
