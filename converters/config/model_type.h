// ModelType: how the config of one model_type is read. A row of FamilySpec::types (family.h).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "converters/config/json_fields.h"
#include "converters/config/model_config.h"

namespace ferry::converters {

// Which layers have a sliding window where layer_types does not list them.
enum class WindowRule {
  kNever,        // all attention is full, whatever the config says about windows
  kAll,          // every layer, where sliding_window is set
  kAllIfUsed,    // every layer, where use_sliding_window is set too
  kFromLayer,    // layers from max_window_layers on, where use_sliding_window is set
  kEvenBefore,   // every second layer before max_window_layers, where use_sliding_window is set
  kPattern,      // all but every sliding_window_pattern-th layer
  kFirstFull,    // all but the first of every sliding_window_pattern layers
  kWhereNoRope,  // layers without RoPE, where use_sliding_window is set
  kChunks,       // layers with RoPE; windows are chunks, and layer types are named after them
  kGlobalLocal   // those that attention_types calls local
};

// Which layers have experts instead of an MLP.
enum class ExpertRule {
  kNever,
  kListed,      // every decoder_sparse_step-th layer that mlp_only_layers does not list
  kAll,         // every layer; there is no other MLP, and scores are always normalised
  kAfterFirst,  // all layers but the first first_k_dense_replace
  kTyped,       // those that mlp_layer_types calls sparse; without it as kAfterFirst
  kNamed,       // those in moe_layers; without it every decoder_sparse_step-th
  kBetween,     // every moe_layer_interval-th of moe_layer_start_index to moe_layer_end_index
  kPeriodic     // layer expert_layer_offset of every expert_layer_period; one expert is an MLP
};

// Which kinds of RoPE scaling the type's configuration class accepts.
enum class RopeRule {
  kNone,     // frequencies are fixed; no key is read
  kShared,   // one RoPE for all layers
  kByLayer,  // one for full attention, one for sliding attention
  kPhi3,     // shared; default or longrope, which may be spelled su and yarn
  kMrope,    // shared; may be mrope, which gives a text plain positions
  kAlpha,    // shared; dynamic may have an alpha, which changes the base
  kGrowing,  // shared; llama_4_scaling_beta makes queries grow with the position
  kMscale,   // shared; of all types but default, short_mscale and long_mscale multiply cos and sin
  kNested    // by layer; may be proportional; no key beside rope_parameters is read
};

// The multimodal model_type whose config has the text decoder's config under text_config. Several
// types may share a wrapper: text_config then names one of them, or means the first.
struct WrapperType {
  std::string_view name = {};  // empty: there is none
  bool tied = false;           // default of tie_word_embeddings in the outer config
  bool flat = false;           // without text_config, the outer config describes the text decoder
  bool text_ties = false;      // tie_word_embeddings ties in text_config too
  bool outer_ties = true;      // it ties in the outer config
};

// The object of a config that describes the layers, where that is not the config itself.
struct ConfigPart {
  std::string_view key = {};  // empty: the config itself
  std::string_view type;      // model_type in it
  // Keys of the config itself that readers find among those of the part.
  std::vector<std::string_view> outer = {};
};

// A member of ModelConfig::numbers: 1 where kSlidingOrDense concerns layers with an MLP.
inline constexpr const char* kDenseRope = "dense_rope";

// Which layers with attention have RoPE.
enum class RopeLayers {
  kAll,
  kListed,          // by no_rope_layers, no_rope_layer_interval
  kListedIfAny,     // as kListed; an empty list counts as none
  kSliding,         // those with a sliding window
  kSlidingOrDense,  // those with a window, and where kDenseRope is 1, those with an MLP
  kSlidingIfAny,    // those with a sliding window; all where the config states none
  kIfNamed,         // all, where position_embedding_type is rope
  kUnlessAlibi,     // all, where the config does not ask for alibi
  kIfUsed,          // all, where use_mem_rope is true
  kNone             // positions are learned vectors, which are added to the embeddings
};

// How a type reads use_bidirectional_attention. All types but those that only
// encode read is_causal.
enum class TwoWayRule {
  kUnread,
  kRefused,     // read, and refused if true: kernels of the reference differ in its effect
  kHalfWindow,  // tokens attend both ways, and half a window reaches in each direction
  kAlways,      // as kHalfWindow, whatever the config says
  kRadius,      // always; all of sliding_window reaches in each direction
  kNamed,       // as kHalfWindow if it is "all"; "vision" concerns images alone
};

// Whether models of the type are encoders, whatever their config says.
constexpr bool only_encodes(TwoWayRule rule) {
  return rule == TwoWayRule::kAlways || rule == TwoWayRule::kRadius;
}

// A flag that only one family reads, and the member of ModelConfig::numbers that holds it as 0 or
// 1.
struct FlagKey {
  std::string_view key;
  const char* number = nullptr;  // nullptr: the member has the name of the key
  bool otherwise = false;
};

// The keys that transformers' configuration class and model of a type read. A key that a type does
// not read has no effect and is reported as unused. Defaults are those of transformers 5.23.0,
// models/TYPE/configuration_TYPE.py.
struct ModelType {
  std::string_view name;  // the value of model_type
  WrapperType wrapper = {};
  ConfigPart part = {};
  // The object that describes the text encoder, where it is of the same class as `part`. The config
  // itself then says whether the head is tied.
  ConfigPart source_part = {};
  // The class's defaults of keys that a config may leave out, as a JSON object. A key that is
  // present and null stays null.
  std::string_view defaults = "{}";
  std::vector<KeyNames> names = {};           // keys that the class reads under other names
  std::vector<std::string_view> unread = {};  // keys of most classes that this one does not read
  std::vector<FlagKey> flags = {};
  // Sizes that only one family reads. Members of ModelConfig::numbers with the same names hold
  // them; 0 where a config does not state one.
  std::vector<std::string_view> sizes = {};
  std::string_view activation_key = "hidden_act";  // empty: silu, whatever the config says
  int64_t mlp_ratio = 0;  // default of intermediate_size / hidden_size; 0: it must be stated
  RopeRule rope = RopeRule::kShared;
  bool partial_rope = false;  // reads partial_rotary_factor; without it RoPE rotates whole heads
  WindowRule window = WindowRule::kNever;
  bool lists_layers = false;    // reads layer_types
  bool attention_bias = false;  // reads attention_bias
  bool qkv_bias = false;        // q, k and v always have a bias
  bool mlp_bias = false;        // reads mlp_bias
  // A quantization_config of BitNet makes the model round the inputs of its matrices.
  bool ternary = false;
  TwoWayRule two_way = TwoWayRule::kUnread;
  bool hybrid = false;  // linear attention in all but every full_attention_interval-th layer
  // Sizes of linear attention that a config leaves out follow from the heads and hidden_size.
  bool linear_from_heads = false;
  bool convs = false;  // layers are full attention or short convolutions
  bool mamba = false;  // layers are Mamba where layer_types does not list attention
  // Returns the types of the layers, where the config determines them in a way of its own. It is
  // called after `read`.
  Result<std::vector<LayerType>> (*layers)(const JsonFields&, const ModelConfig&) = nullptr;
  RopeLayers rope_layers = RopeLayers::kAll;
  ExpertRule experts = ExpertRule::kNever;
  bool shared_expert = false;  // a shared expert beside the routed ones
  // Reads the keys that only this type or its family has. It is called after sizes, biases and
  // experts have been read, and before layer types and RoPE.
  Status (*read)(const JsonFields&, ModelConfig&) = nullptr;
  // Reads what is known of layers by their number, such as per_layer_config, which all other types
  // refuse. It is called after layer types, and may change them.
  Status (*read_layers)(const JsonFields&, ModelConfig&) = nullptr;
};

}  // namespace ferry::converters
