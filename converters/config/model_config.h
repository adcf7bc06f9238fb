// ModelConfig: the validated numbers of a checkpoint's config.json. Both styles are read: that of
// transformers 4 (rope_theta, rope_scaling, torch_dtype, per-family layer patterns) and of
// transformers 5 (rope_parameters, dtype, layer_types). Sizes come from here, never from a weight.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::converters {

enum class Activation { kSilu, kGelu, kGeluTanh };

enum class LayerType { kFullAttention, kSlidingAttention, kLinearAttention, kShortConv };

struct RopeConfig {
  // Dynamic RoPE is read as default: no program has positions where they differ.
  enum class Type { kDefault, kLinear, kDynamic, kYarn, kLlama3, kLongRope } type = Type::kDefault;
  double theta = 10000.0;
  double partial_rotary_factor = 1.0;
  int64_t rotary_dim = 0;              // CodeGen states it; else it follows from the factor
  double factor = 1.0;                 // linear, llama3, yarn
  double low_freq_factor = 1.0;        // llama3
  double high_freq_factor = 4.0;       // llama3
  int64_t original_max_positions = 0;  // llama3, longrope, yarn
  // yarn: pairs that turn more often than beta_fast within the original length keep their
  // frequency, those that turn less often than beta_slow are slowed down by the factor.
  double beta_fast = 32.0, beta_slow = 1.0;
  bool truncate = true;  // the bounds between them are rounded to whole pairs
  // longrope: divisors of the frequencies, one per pair of dimensions, for sequences of at most
  // original_max_positions and for longer ones.
  std::vector<double> factors = {}, long_factors = {};
  double attention_factor = 1.0;  // longrope, yarn: what cos and sin are multiplied by
  bool operator==(const RopeConfig&) const = default;
};

// Numbers beside the weights that some families compute with. The defaults change nothing.
struct ScalarConfig {
  double embedding = 1.0;                   // embeddings are multiplied by it
  double residual = 1.0;                    // so is what a block adds to the residual stream
  double logits = 1.0;                      // and the logits
  std::optional<double> attention;          // and the attention scores; none: by 1/sqrt(head_dim)
  std::optional<double> attention_softcap;  // cap: scaled scores become cap * tanh(score / cap)
  std::optional<double> logit_softcap;      // the same for the logits
  bool operator==(const ScalarConfig&) const = default;
};

// Gated DeltaNet (Qwen3.5, Qwen3-Next); all zero where the model has no linear layers.
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

// Routed experts; all zero where the model has none.
struct MoeConfig {
  int64_t experts = 0;
  int64_t per_token = 0;        // experts that a token passes through
  int64_t expert_size = 0;      // intermediate size of one
  int64_t shared_size = 0;      // of the expert that all tokens pass through; 0: there is none
  bool norm_top_scores = true;  // the scores of the chosen ones are scaled to a sum of 1
  std::vector<bool> layers;     // which layers have experts instead of an MLP
  bool operator==(const MoeConfig&) const = default;
};

struct FamilySpec;  // family.h
using FamilyTable = std::span<const FamilySpec* const>;
FamilyTable all_families();

struct ModelConfig {
  const FamilySpec* family = nullptr;  // that serves model_type; never null in a parsed config
  std::string model_type;              // of the outer config: "qwen3_5"
  std::string text_type;    // of the text part; equals model_type where there is no text_config
  bool multimodal = false;  // the text part was found under text_config

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;  // of the MLPs; 0 where every layer has experts
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_positions = 0;
  double rms_norm_eps = 1e-6;
  Activation activation = Activation::kSilu;  // of the MLP
  bool attention_bias = false;                // q, k, v (and o where the family says so)
  bool mlp_bias = false;
  bool tie_word_embeddings = false;
  std::optional<int64_t> sliding_window;  // set only where some layer uses it
  RopeConfig rope;                        // of full attention
  RopeConfig sliding_rope;                // of sliding attention: the same in most families
  ScalarConfig scalars;
  LinearAttentionConfig linear;
  // Numbers that only one family has, under names of its own. ModelType::read fills them in, the
  // family's rules and blocks read them.
  std::map<std::string, int64_t, std::less<>> numbers;
  std::vector<LayerType> layer_types;  // one per layer, always filled
  std::vector<bool> rope_layers;       // the same: whether attention of the layer turns q and k

  std::optional<int64_t> bos_id;
  std::vector<int64_t> eos_ids;  // generation_config.json wins over config.json

  MoeConfig moe;

  bool has_experts(int64_t layer) const {
    return moe.experts > 0 && moe.layers[static_cast<size_t>(layer)];
  }
  int64_t number(std::string_view name) const;  // of `numbers`; 0 if absent
  int64_t q_size() const { return num_heads * head_dim; }
  int64_t kv_size() const { return num_kv_heads * head_dim; }
  // Dimensions of a head that RoPE turns: even, at most head_dim.
  int64_t rotary_dim() const;
  bool operator==(const ModelConfig&) const = default;
};

// What there is to say about a config beside its numbers.
struct ConfigReport {
  // Keys that neither Ferry nor the reference takes notice of, as sorted paths
  // ("text_config.rope_scaling.finetuned"). Left out are nulls and keys that are known to change
  // nothing (is_inert_key() in inert_keys.h).
  std::vector<std::string> unused_keys;
};

// `config_json` is the text of config.json; `generation_json` that of generation_config.json, or
// empty. `name` begins the messages. kBadInput for numbers that are missing, of the wrong kind, out
// of range or inconsistent (with the key's name); kUnsupported for types and features that would
// change the output and are not supported (rope types, activations, ...). Keys that a config leaves
// out have the defaults of transformers' configuration classes. `report` may be null.
Result<ModelConfig> parse_model_config(const std::string& config_json,
                                       const std::string& generation_json, const std::string& name,
                                       ConfigReport* report = nullptr,
                                       FamilyTable families = all_families());

// 1 / theta^(2i/rotary_dim) for i in [0, rotary_dim/2), in f32 with the scaling of rope.type
// applied as transformers does it.
std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, int64_t rotary_dim);

}  // namespace ferry::converters
