// The parts of parse_model_config: each reads one topic of config.json into `config`, and relies on
// those before it. Not a public header.
#pragma once

#include "converters/config/json_fields.h"
#include "converters/config/model_config.h"
#include "converters/config/model_types.h"

namespace ferry::converters {

// Generous bounds: far above any model, low enough that products of a few sizes fit 64 bits.
constexpr IntRange kSizeRange = {1, int64_t{1} << 24};
constexpr IntRange kLayerRange = {1, 1024};
constexpr IntRange kHeadRange = {1, 4096};
constexpr IntRange kHeadDimRange = {1, 1 << 16};
constexpr IntRange kPositionRange = {1, INT32_MAX};
constexpr IntRange kConvRange = {1, 64};
constexpr IntRange kExpertRange = {0, 1 << 12};
constexpr IntRange kTokenRange = {INT32_MIN, INT32_MAX};
constexpr FloatRange kEpsRange = {1e-30, 1.0};
constexpr FloatRange kThetaRange = {1e-3, 1e15};
constexpr FloatRange kFactorRange = {1e-3, 1e6};
constexpr FloatRange kScaleRange = {1e-6, 1e6};
constexpr FloatRange kPartialRange = {1e-3, 1.0};

// Needs num_layers and the activation.
Status read_experts(const JsonFields& fields, const TypeTraits& type, ModelConfig& config);
// Sizes that only some families have, and those that they derive in their own way. Needs the
// others.
Status read_family_sizes(const JsonFields& fields, ModelConfig& config);
// Needs head_dim and the layer types.
Status read_rope(const JsonFields& fields, const TypeTraits& type, ModelConfig& config);
// Needs hidden_size.
Status read_scalars(const JsonFields& fields, const TypeTraits& type, ModelConfig& config);
// Layer types, windows, layers without RoPE, and the sizes of linear layers. Needs num_layers.
Status read_layer_types(const JsonFields& fields, const TypeTraits& type, ModelConfig& config);

}  // namespace ferry::converters
