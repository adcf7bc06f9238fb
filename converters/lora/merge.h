// merge_lora() merges an adapter into weights: W + scale * B A, as merge_and_unload() of peft does
// in f32.
#pragma once

#include <cstddef>
#include <string>

#include "converters/keys/keyed_tensors.h"
#include "converters/lora/config.h"
#include "core/derived_source.h"
#include "core/result.h"

namespace ferry::converters {

// The tensors of the adapter are the entries of `source` from `first` on. Recipes of the weights
// that the adapter changes become those of derived tensors, which have the dtype of the base unless
// another dtype is asked for. kBadInput for a tensor of the adapter that belongs to no weight, and
// for shapes that do not fit; nothing of the adapter is left out. `model_config` is the text of
// config.json. Returns a line for the user.
Result<std::string> merge_lora(DerivedSource& source, size_t first, const LoraConfig& config,
                               const std::string& model_config, KeyedTensors& tensors);

}  // namespace ferry::converters
