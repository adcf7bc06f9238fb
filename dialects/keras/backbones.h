// The classes of backbones that Ferry reads, and what their translators share. A translator reads
// every option that changes the output; config.cc refuses the options that it did not ask for.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string_view>

#include "converters/config/json_fields.h"
#include "core/result.h"

namespace ferry::converters {

using KerasJson = nlohmann::ordered_json;

struct KerasBackbone {
  std::string_view class_name;
  // The Hugging Face config. `own_head`: the weights hold an output matrix beside the embedding.
  Result<KerasJson> (*translate)(const JsonFields& config, bool own_head);
  // Options that it does not ask for because they do not change the output of a trained model.
  std::span<const std::string_view> inert = {};
};

std::span<const KerasBackbone> keras_gemmas();   // Gemma 1, 2 and 3
std::span<const KerasBackbone> keras_llamas();   // gated MLPs: Llama, Qwen, Mistral, Phi-3, SmolLM3
std::span<const KerasBackbone> keras_moes();     // with experts
std::span<const KerasBackbone> keras_hybrids();  // linear attention: Qwen 3.5
std::span<const KerasBackbone> keras_gpts();     // layer norms and biases: GPT-2, OPT, GPT-NeoX

// Keras states no number of positions in most classes: RoPE has no end. This stands for it, and
// --context-length chooses.
constexpr int64_t kUnstatedPositions = 131072;

// Where the size of a head comes from.
enum class KerasHeadDim {
  kShare,   // hidden_dim / heads
  kStated,  // the option head_dim
  kEither   // the option, or the share where it is null
};

struct KerasSizes {
  KerasHeadDim head_dim = KerasHeadDim::kShare;
  std::string_view heads = "num_query_heads";  // key of the number of query heads
  bool mlp = true;                             // some layers may have an MLP: intermediate_dim
};

// Sizes, heads and epsilon of the classes with grouped heads.
Result<KerasJson> keras_sizes(const JsonFields& config, const char* model_type,
                              const KerasSizes& sizes);
// The number of heads under `key`, which divides hidden_dim.
Result<int64_t> keras_even_heads(const JsonFields& config, std::string_view key);

// rope_max_wavelength and rope_scaling_factor, which is a linear one, into rope_theta and
// rope_scaling.
Status set_keras_rope(KerasJson& out, const JsonFields& config);
// A linear scaling of RoPE; null where nothing is scaled.
KerasJson keras_linear_scaling(double factor);

// The window under `key`: `otherwise` where the key is absent, none where it is null.
Result<std::optional<int64_t>> keras_window(const JsonFields& config, std::string_view key,
                                            int64_t otherwise);
// Makes it that of every layer, for the types whose use_sliding_window says whether there is one.
void set_keras_window(KerasJson& out, std::optional<int64_t> window);
// A list of one layer type for each layer; `slides` says which have a window.
KerasJson keras_layer_types(const KerasJson& out, bool (*slides)(int64_t layer));

// The number of experts, in `range`, under `key`, and how many a token passes through.
Status set_keras_experts(KerasJson& out, const JsonFields& config, const char* key, IntRange range,
                         int64_t default_top);

// "NAME: 'config.KEY' WHAT" as kUnsupported.
Failure unsupported_keras(const JsonFields& config, std::string_view key, std::string_view what);

}  // namespace ferry::converters
