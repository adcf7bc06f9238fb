// The names of Gemma 3n's own numbers in ModelConfig::numbers (private to blocks/).
#pragma once

#include <cstdint>
#include <string>

namespace ferry::converters {

// Named as the config's keys.
inline constexpr const char* kStreams = "altup_num_inputs";
inline constexpr const char* kActiveStream = "altup_active_idx";
inline constexpr const char* kScaleCorrected = "altup_correct_scale";
inline constexpr const char* kLaurelRank = "laurel_rank";
inline constexpr const char* kLayerInputSize = "hidden_size_per_layer_input";
inline constexpr const char* kLayerVocab = "vocab_size_per_layer_input";
inline constexpr const char* kSharedLayers = "num_kv_shared_layers";
// The bits of an f64: how many standard deviations above the mean a sparse layer's activations must
// be; absent where the layer is not sparse.
inline std::string cutoff_name(int64_t layer) {
  return "activation_cutoff." + std::to_string(layer);
}

}  // namespace ferry::converters
