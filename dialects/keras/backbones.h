// The classes of backbones that Ferry reads, and what their translators share. A translator reads
// every option that changes the output; config.cc refuses options that were not read.
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
  // Returns the Hugging Face config. `own_head` says that the weights have an output matrix beside
  // the embedding.
  Result<KerasJson> (*translate)(const JsonFields& config, bool own_head);
  // Options that are not read because they do not change the output of a trained model.
  std::span<const std::string_view> inert = {};
};

std::span<const KerasBackbone> keras_gemmas();   // Gemma 1, 2 and 3
std::span<const KerasBackbone> keras_llamas();   // gated MLPs: Llama, Qwen, Mistral, Phi-3, SmolLM3
std::span<const KerasBackbone> keras_moes();     // with experts
std::span<const KerasBackbone> keras_hybrids();  // linear attention: Qwen 3.5
std::span<const KerasBackbone> keras_gpts();     // layer norms and biases: GPT-2, OPT, GPT-NeoX

// Most classes of Keras state no number of positions, because RoPE has no end. This number stands
// for it; the context length of the conversion chooses.
constexpr int64_t kUnstatedPositions = 131072;

// The source of the head size.
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

// Reads sizes, heads and epsilon of the classes with grouped heads.
Result<KerasJson> keras_sizes(const JsonFields& config, const char* model_type,
                              const KerasSizes& sizes);
// Reads the number of heads under `key`, which must divide hidden_dim.
Result<int64_t> keras_even_heads(const JsonFields& config, std::string_view key);

// Translates rope_max_wavelength into rope_theta, and rope_scaling_factor into a linear
// rope_scaling.
Status set_keras_rope(KerasJson& out, const JsonFields& config);
// Returns a linear scaling of RoPE, or null if nothing is scaled.
KerasJson keras_linear_scaling(double factor);

// Reads the window under `key`: `otherwise` if the key is absent, no window if it is null.
Result<std::optional<int64_t>> keras_window(const JsonFields& config, std::string_view key,
                                            int64_t otherwise);
// Sets the window for every layer, for types whose use_sliding_window says whether there is one.
void set_keras_window(KerasJson& out, std::optional<int64_t> window);
// Returns a list with one layer type for each layer; `slides` says which layers have a window.
KerasJson keras_layer_types(const KerasJson& out, bool (*slides)(int64_t layer));

// Reads the number of experts under `key`, which must be in `range`, and the number of experts for
// each token.
Status set_keras_experts(KerasJson& out, const JsonFields& config, const char* key, IntRange range,
                         int64_t default_top);

// Returns kUnsupported with the message "NAME: 'config.KEY' WHAT".
Failure unsupported_keras(const JsonFields& config, std::string_view key, std::string_view what);

}  // namespace ferry::converters
