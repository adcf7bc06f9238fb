// Keys of configs that do not change what a text decoder computes.
#pragma once

#include <string_view>

namespace ferry::converters {

// Whether `key` is about training, sampling, notes or the parts of a multimodal model that are
// dropped. Such keys are not reported as unused.
bool is_inert_key(std::string_view key);

}  // namespace ferry::converters
