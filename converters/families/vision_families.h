// Declares the VisionFamily of every family in vision_families.def.
#pragma once

#include "converters/family.h"

namespace ferry::converters::families {

// Towers of several families.
inline constexpr VisionTower kSiglipTower = {
    "siglip_vision_model",
    R"({"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "num_channels": 3, "image_size": 224, "patch_size": 16,
        "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6})"};
inline constexpr VisionTower kSiglip2Tower = {
    "siglip2_vision_model",
    R"({"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "num_channels": 3, "patch_size": 16, "num_patches": 256,
        "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6})"};
inline constexpr VisionTower kClipTower = {
    "clip_vision_model",
    R"({"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
        "num_attention_heads": 12, "num_channels": 3, "image_size": 224, "patch_size": 32,
        "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5})"};

inline constexpr VisionTower kPixtralTower = {
    "pixtral",
    R"({"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
        "num_attention_heads": 16, "num_channels": 3, "patch_size": 16, "hidden_act": "gelu"})",
    /*any_shape=*/true};

#define FERRY_VISION_FAMILY(name)    \
  namespace name {                   \
  extern const VisionFamily kFamily; \
  }
#include "converters/families/vision_families.def"
#undef FERRY_VISION_FAMILY

}  // namespace ferry::converters::families
