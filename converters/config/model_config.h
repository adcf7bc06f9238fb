// ModelConfig: the validated contents of a checkpoint's config.json; parse_model_config() reads it.
// It accepts the keys of transformers 4 (rope_theta, rope_scaling, torch_dtype, layer patterns of
// each family) and those of transformers 5 (rope_parameters, dtype, layer_types). All sizes of a
// model come from here, never from a weight.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "converters/config/classifier_config.h"
#include "converters/config/sentence_config.h"
#include "converters/config/tower_config.h"
#include "core/result.h"

namespace ferry::converters {

// Token ids from `first` on, before `end`, whose embeddings come from a table of their own: rows of
// `width`, a norm with weights, a linear and a norm without (Gemma 3n). Weights are those of
// `name`.
struct TokenRangeConfig {
  std::string name;
  int64_t first = 0, end = 0;
  int64_t table_rows = 0, width = 0;
  double norm_eps = 1e-6;
  bool operator==(const TokenRangeConfig&) const = default;
};

// The text encoder of an encoder-decoder, whose output the layers of the text decoder attend to
// (cross-attention). All that is not stated here is that of the decoder, unless the config
// describes the encoder apart (ModelConfig::own_source).
struct SourceConfig {
  int64_t hidden_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0, head_dim = 0;
  int64_t intermediate_size = 0;
  bool bias = false;          // of the matrices of cross-attention
  int64_t max_positions = 0;  // of its texts
  bool operator==(const SourceConfig&) const = default;
};

// Scores have a bias by the distance of the tokens (blocks/relative_bias.h). The defaults are those
// of MPNet, whatever a config says.
struct RelativeBiasConfig {
  int64_t buckets = 32;    // rows of a table
  int64_t farthest = 128;  // distances from here on share a bucket
  bool by_layer = false;   // each layer has a table of its own
  bool operator==(const RelativeBiasConfig&) const = default;
};

enum class LayerType {
  kFullAttention,
  kSlidingAttention,
  kLinearAttention,
  kShortConv,
  kMamba,
  kMambaAndAttention,  // both in one layer
  kNoMixer             // an MLP or experts alone
};
// Whether a layer of this type has a KV cache.
constexpr bool is_attention(LayerType type) {
  return type == LayerType::kFullAttention || type == LayerType::kSlidingAttention ||
         type == LayerType::kMambaAndAttention;
}
// Whether a layer of this type has states of fixed size.
constexpr bool has_state(LayerType type) {
  return type != LayerType::kFullAttention && type != LayerType::kSlidingAttention &&
         type != LayerType::kNoMixer;
}

struct RopeConfig {
  // Dynamic RoPE is read as default: the two are equal at all positions that a program can have.
  // Proportional RoPE rotates whole heads, of which only partial_rotary_factor has angles that are
  // not 0; the frequencies are those of the whole head.
  enum class Type {
    kDefault,
    kLinear,
    kDynamic,
    kYarn,
    kLlama3,
    kLongRope,
    kProportional
  } type = Type::kDefault;
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
  int64_t rotary_dim = 0;              // 0: follows from partial_rotary_factor
  double factor = 1.0;                 // linear, llama3, yarn, proportional
  double low_freq_factor = 1.0;        // llama3
  double high_freq_factor = 4.0;       // llama3
  int64_t original_max_positions = 0;  // llama3, longrope, yarn
  // yarn: pairs that make more than beta_fast turns within the original length keep their
  // frequency; that of pairs with fewer than beta_slow turns is divided by the factor.
  double beta_fast = 32.0, beta_slow = 1.0;
  bool truncate = true;  // yarn: the bounds of the range between are rounded to whole pairs
  // longrope: divisors of the frequencies, one per pair of dimensions, for sequences of at most
  // original_max_positions and for longer ones.
  std::vector<double> factors = {}, long_factors = {};
  double attention_factor = 1.0;  // longrope, yarn: multiplies cos and sin
  int64_t first_position = 0;     // the number of the first position (PaliGemma: 1)
  // Queries are multiplied by 1 + query_growth * ln(1 + floor(position / original_max_positions)).
  double query_growth = 0.0;
  // In a decoder whose images have places in three dimensions: for each pair of rotary dimensions,
  // the position that turns it, 0 in time, 1 in height, 2 in width. Empty: there is one position.
  std::vector<int64_t> axes = {};
  bool operator==(const RopeConfig&) const = default;
};

// Multipliers and softcaps of some families. The defaults have no effect.
struct ScalarConfig {
  double embedding = 1.0;  // multiplies the embeddings
  // Whether `embedding` multiplies the rows of images too, so that the text decoder does it, and
  // not the token embedding.
  bool scales_rows = false;
  bool multiplies_rows() const { return scales_rows && embedding != 1.0; }
  double residual = 1.0;                         // multiplies the output of a block
  double logits = 1.0;                           // multiplies the logits
  std::optional<double> attention = {};          // multiplies the scores; none: 1/sqrt(head_dim)
  std::optional<double> attention_softcap = {};  // scaled scores become cap * tanh(score / cap)
  std::optional<double> logit_softcap = {};      // logits likewise
  double values = 1.0;                           // multiplies the values of attention (MiMo)
  // Queries, keys and values are limited to -qkv_clip and qkv_clip before RoPE.
  std::optional<double> qkv_clip = {};
  // Queries of layers without RoPE are multiplied by
  // 1 + query_growth * ln(1 + floor((position + 1) / query_growth_step)) (Llama 4).
  double query_growth = 0.0;
  int64_t query_growth_step = 1;
  // Falcon-H1: multipliers of the input and output of attention, of the input and output of Mamba,
  // of the gate of an MLP before its activation, and of the output of an MLP.
  double attention_in = 1.0, attention_out = 1.0;
  double mamba_in = 1.0, mamba_out = 1.0;
  double mlp_gate = 1.0, mlp_out = 1.0;
  bool operator==(const ScalarConfig&) const = default;
};

// Gated DeltaNet (Qwen3.5, Qwen3-Next); all zero if the model has no linear attention.
struct LinearAttentionConfig {
  int64_t key_heads = 0, value_heads = 0;  // value_heads is a multiple of key_heads
  int64_t key_dim = 0, value_dim = 0;      // per head
  int64_t conv_kernel = 0;
  int64_t key_size() const { return key_heads * key_dim; }
  int64_t value_size() const { return value_heads * value_dim; }
  int64_t conv_channels() const { return 2 * key_size() + value_size(); }
  int64_t groups() const { return value_heads / key_heads; }  // value heads per key head
  bool operator==(const LinearAttentionConfig&) const = default;
};

// Mamba-2 and, where `rank` is set, Mamba; all zero if the model has neither.
struct MambaConfig {
  int64_t heads = 0, head_dim = 0;  // Mamba: 1 and the number of inner channels
  int64_t groups = 0;               // groups of heads that share B and C
  int64_t state = 0;
  int64_t conv_kernel = 0;
  int64_t rank = 0;  // Mamba: the width from which the time steps are projected
  bool conv_bias = false;
  bool in_bias = false, out_bias = false;     // of the two projections
  Activation activation = Activation::kSilu;  // behind the convolution
  double least_step = 0.0;                    // time steps are at least this
  std::optional<double> greatest_step = {};   // and at most this
  // The gate multiplies what is normalised, or what has been normalised.
  enum class Norm { kBehindGate, kBeforeGate, kNone } norm = Norm::kBehindGate;
  double norm_eps = 0.0;
  // Mamba: B, C and the input of the time steps are normalised, with weights where
  // `inner_weights` is set.
  bool inner_norms = false, inner_weights = false;
  // Multipliers of the five parts of the input projection: gate, x, B, C and time steps.
  std::vector<double> multipliers = {};
  int64_t inner() const { return heads * head_dim; }
  int64_t conv_channels() const { return rank > 0 ? inner() : inner() + 2 * groups * state; }
  bool operator==(const MambaConfig&) const = default;
};

// Routed experts; all zero if the model has none.
struct MoeConfig {
  int64_t experts = 0;
  int64_t per_token = 0;    // experts chosen for a token
  int64_t expert_size = 0;  // intermediate size of one expert
  int64_t shared_size = 0;  // intermediate size of the shared expert; 0: there is none
  bool shared_gate = true;  // sigmoid of a gate multiplies the output of the shared expert
  enum class Scores {
    kSoftmax,     // softmax over all experts
    kSigmoid,     // sigmoid of each expert's logit
    kTopSoftmax,  // softmax over the logits of the chosen experts
    // Two experts, one after the other: each has its part of a softmax over those that were not
    // chosen before and whose logits are near its own (SparseMixer, arXiv 2409.12136).
    kSparseMixer
  } scores = Scores::kSoftmax;
  bool router_bias = false;     // added to the logits
  bool choice_bias = false;     // added to the scores where experts are chosen, and only there
  bool norm_top_scores = true;  // the chosen scores are scaled to a sum of 1
  double norm_epsilon = 0.0;    // added to the sum of the chosen scores
  double least_norm = 0.0;      // a lower sum of the chosen scores counts as this
  double scale = 1.0;           // multiplies the chosen scores
  bool expert_scale = false;    // each expert has a number that multiplies its scores too
  // kSparseMixer: the distance of near logits, in proportion to the larger one of the best logit
  // and the absolute value of the other.
  double nearness = 0.0;
  double sum_scale = 1.0;     // multiplies the sum of routed and shared experts
  bool scores_input = false;  // scores multiply what experts read, not what they give (Llama 4)
  // Experts are chosen from the best groups of equal size. The score of a group is the sum of its
  // `group_best` best scores.
  int64_t groups = 1, top_groups = 1, group_best = 1;
  // Experts as in GPT-OSS: every matrix has a bias, gate and up are clamped to [-limit, limit], the
  // gate from above only, and w2 sees gate * sigmoid(steepness * gate) * (up + 1).
  struct Clamp {
    double steepness = 0.0, limit = 0.0;
    bool operator==(const Clamp&) const = default;
  };
  std::optional<Clamp> clamp = {};
  // Experts without a gate compute w2 relu(w1 x)^2 between two projections of all tokens, from the
  // hidden size to `latent_size` and back; 0: there are no such projections (Nemotron-H).
  bool gated = true;
  int64_t latent_size = 0;
  std::vector<bool> layers;  // which layers have experts instead of an MLP
  bool operator==(const MoeConfig&) const = default;
};

// The heads of keys and values, and the size of all heads.
struct HeadSizes {
  int64_t kv_heads = 0, dim = 0;
  bool operator==(const HeadSizes&) const = default;
};

struct FamilySpec;    // family.h
struct VisionFamily;  // vision_family.h
using FamilyTable = std::span<const FamilySpec* const>;
FamilyTable all_families();

// A member of ModelConfig::numbers: 1 where the inputs of all matrices of layers are rounded to 8
// bits (BitNet).
inline constexpr const char* kRoundedInputs = "rounded_inputs";
// A member of ModelConfig::numbers: 1 where an MLP normalises what its last matrix reads (BitNet).
inline constexpr const char* kMlpNorm = "mlp_norm";

// A member of ModelConfig::numbers: 1 where layers with RoPE normalise q and k behind it (Llama 4).
inline constexpr const char* kRopeNorm = "use_qk_norm";

// A member of ModelConfig::numbers: 1 where the windows of sliding attention are chunks. A token
// attends to those tokens before it that are in the same chunk of sliding_window positions.
inline constexpr const char* kChunkedWindows = "chunked_windows";

// A member of ModelConfig::numbers: the types that tokens may have.
inline constexpr const char* kTokenTypes = "type_vocab_size";

struct ModelConfig {
  const FamilySpec* family = nullptr;  // family of the text decoder; never null in a parsed config
  // Set together with `vision` for a vision-language model, and with `audio` for a language model
  // that takes rows of sound; nullptr if the text decoder takes tokens.
  const VisionFamily* vision_family = nullptr;
  std::string model_type;   // model_type of the outer config: "qwen3_5"
  std::string text_type;    // model_type of the text decoder; `model_type` unless multimodal
  bool multimodal = false;  // the text decoder is described under text_config

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // width of the MLPs; 0 where every layer has experts
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  // Heads of full attention, where they are not those of num_kv_heads and head_dim, which are then
  // the heads of sliding attention.
  std::optional<HeadSizes> full_heads = {};
  int64_t max_positions = 0;
  double rms_norm_eps = 1e-6;
  Activation activation = Activation::kSilu;  // activation of the MLP
  bool attention_bias = false;                // biases of q, k, v; in some families of o too
  bool mlp_bias = false;
  bool tie_word_embeddings = false;
  // If true, tie_word_embeddings is only the default of a class: a head that the checkpoint has is
  // used.
  bool tie_unless_stored = false;
  // Set only where some layer has a window. A token attends to tokens that are nearer than this.
  std::optional<int64_t> sliding_window;
  bool two_way = false;       // tokens attend to later ones too
  bool only_encodes = false;  // the model is no decoder, whatever its config says
  // The program gives states, not logits. Every model that attends both ways is an encoder.
  bool is_encoder = false;
  std::optional<SentenceConfig> sentence;      // encoder: how its states become one vector
  std::optional<ClassifierConfig> classifier;  // encoder: how its states become scores of labels
  RopeConfig rope;                             // RoPE of full attention
  RopeConfig sliding_rope;  // RoPE of sliding attention; equal to `rope` in most families
  ScalarConfig scalars;
  LinearAttentionConfig linear;
  MambaConfig mamba;
  // Numbers that only one family has, by name. ModelType::read sets them; the family's rules and
  // blocks read them.
  std::map<std::string, int64_t, std::less<>> numbers;
  std::vector<LayerType> layer_types;  // one for each layer
  std::vector<bool> rope_layers;       // one for each layer: whether its attention has RoPE

  std::optional<int64_t> bos_id;
  // The token that answers of an encoder-decoder begin with; from generation_config.json if it is
  // there.
  std::optional<int64_t> decoder_start_id;
  std::vector<int64_t> eos_ids;  // from generation_config.json if it has them

  MoeConfig moe;
  std::optional<VisionConfig> vision;
  std::optional<AudioConfig> audio;
  // A decoder that takes rows gives these token ids the embedding and the layer inputs of token
  // `pad_id`.
  std::vector<int64_t> padded_ids;
  int64_t pad_id = 0;
  std::vector<TokenRangeConfig> token_ranges;  // in the order in which they take the place of rows
  std::optional<RelativeBiasConfig> relative_bias;
  std::optional<SourceConfig> source;
  // One model, where the config of an encoder-decoder describes its encoder apart (T5Gemma); its
  // tables are its own. Empty: the encoder follows from `source` and this decoder.
  std::vector<ModelConfig> own_source;

  bool has_experts(int64_t layer) const {
    return moe.experts > 0 && moe.layers[static_cast<size_t>(layer)];
  }
  // Returns the number of layers whose outputs get features of the vision tower added.
  int64_t deepstack() const {
    return vision && vision->any_shape ? std::ssize(vision->any_shape->deepstack) : 0;
  }
  bool has_rope() const;                        // whether any layer has RoPE
  int64_t number(std::string_view name) const;  // value in `numbers`; 0 if absent
  // Whether the layers of the decoder attend to the output of an encoder.
  bool has_cross_attention() const {
    return (audio && !audio->conformer && !audio->to_rows) || source;
  }
  // Whether the text decoder takes embeddings, some of which are rows of images or sounds.
  bool takes_rows() const { return vision_family != nullptr; }
  // Whether sounds become such rows.
  bool hears_rows() const { return audio && audio->to_rows; }
  // Returns the width of the audio encoder.
  int64_t audio_width() const { return hears_rows() ? audio->to_rows->width : hidden_size; }
  // Returns the text encoder of an encoder-decoder as a model that only encodes.
  ModelConfig source_encoder() const;
  HeadSizes heads_of(LayerType type) const {
    const bool own = full_heads && type == LayerType::kFullAttention;
    return own ? *full_heads : HeadSizes{num_kv_heads, head_dim};
  }
  HeadSizes heads_of(int64_t layer) const {
    return heads_of(layer_types[static_cast<size_t>(layer)]);
  }
  int64_t q_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
  // Returns the dimensions of a head that RoPE rotates: even, at most the size of the head.
  int64_t rotary_dim(LayerType type = LayerType::kFullAttention) const;
  bool operator==(const ModelConfig&) const = default;
};

// A key that two versions of transformers read in different ways (version_rules.h).
struct VersionReading {
  std::string key;      // "rope_parameters.mscale_all_dim"
  std::string reading;  // predicate of the key: its effect in the newer version and in Ferry
  std::string earlier;  // predicate of the key: its effect in the earlier version
  bool operator==(const VersionReading&) const = default;
};

// Inputs states what the programs of a model take beside text, where towers are built by choice.
struct Inputs {
  bool images = false, sounds = false;
  bool are_text() const { return !images && !sounds; }
  bool operator==(const Inputs&) const = default;
};

// Findings about a config that a user may want to know.
struct ConfigReport {
  // Paths of the keys that neither Ferry nor the reference reads, sorted
  // ("text_config.rope_scaling.finetuned"). Nulls are left out, and keys that are known to have no
  // effect (is_inert_key() in config_parts.h).
  std::vector<std::string> unused_keys;
  std::vector<VersionReading> version_readings;
};

// Finds the family of the config's model_type and reads the config as that family does.
// `config_json` is the text of config.json; `generation_json` is the text of generation_config.json
// or empty. Messages begin with `name` and name the key. kBadInput: a number is missing, has the
// wrong kind, is out of range or inconsistent. kUnsupported: a type or a feature would change the
// output (kinds of RoPE, activations). An absent key has the default of transformers' configuration
// class. `report` may be null. A model whose towers are built by choice has those of `inputs`.
Result<ModelConfig> parse_model_config(const std::string& config_json,
                                       const std::string& generation_json, const std::string& name,
                                       ConfigReport* report = nullptr,
                                       FamilyTable families = all_families(), Inputs inputs = {});

}  // namespace ferry::converters
