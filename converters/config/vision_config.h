// VisionConfig: the sizes of a vision tower and of the connector behind it, as a config states
// them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace ferry::converters {

enum class Activation { kSilu, kGelu, kGeluTanh, kRelu, kRelu2 };

// A transformer over square patches of a square image. Every s x s block of patches becomes one
// token of the text decoder, where s is `shuffle`.
struct VisionConfig {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t channels = 3;
  int64_t image_size = 0;  // pixels of a side; a multiple of patch_size
  int64_t patch_size = 0;
  int64_t shuffle = 1;  // divides the patches of a side
  double norm_eps = 1e-6;
  Activation activation = Activation::kGelu;
  bool class_token = false;  // before the patches, removed behind the last layer
  bool qkv_bias = true;
  bool qk_norm = false;  // RMS norm of q and k over all heads, before attention
  double qk_norm_eps = 1e-6;
  bool rms_norm = false;       // RMS norms without bias instead of layer norms
  bool layer_scale = false;    // the output of a block is multiplied by a vector
  bool final_norm = false;     // behind the last layer
  bool mlp_connector = false;  // layer norm, linear, activation, linear; else one linear
  Activation connector_activation = Activation::kGelu;
  std::optional<int64_t> image_token_id = {};  // the placeholder of a row of image features
  std::string image_token = {};  // its text in the tokenizer, where the config has no id

  int64_t head_dim() const { return hidden_size / num_heads; }
  int64_t grid() const { return image_size / patch_size; }  // patches of a side
  int64_t patches() const { return grid() * grid(); }
  int64_t patch_values() const { return channels * patch_size * patch_size; }
  // Returns the rows of image features that one image or tile becomes.
  int64_t image_tokens() const { return patches() / (shuffle * shuffle); }
  // Returns the width of a row of image features before the connector.
  int64_t shuffled_size() const { return hidden_size * shuffle * shuffle; }
  bool operator==(const VisionConfig&) const = default;
};

}  // namespace ferry::converters
