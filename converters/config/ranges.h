// Ranges of the numbers in a config: far above those of any model, and low enough that products of
// a few sizes fit into 64 bits.
#pragma once

#include <cstdint>

#include "converters/config/json_fields.h"

namespace ferry::converters {

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

}  // namespace ferry::converters
