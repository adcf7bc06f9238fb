// Numbers that files have in the metadata, one for each layer, and checkpoints as tensors of one
// element: those of activations with weights of their own. Their rows in the tables of an
// architecture have a key of the metadata in the place of a tensor's name.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "converters/config/model_config.h"
#include "converters/keys/keyed_tensors.h"
#include "core/gguf_key_value.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "dialects/gguf/model/architecture.h"

namespace ferry::converters {

bool is_layer_number(const GgufName& row);

// Adds a tensor for each number of each layer to `out`. kBadInput where the metadata lack a key, or
// have no number for each layer.
Status add_layer_numbers(const TensorSource& source, const GgufArchitecture& architecture,
                         const ModelConfig& config, const nlohmann::json& metadata,
                         KeyedTensors& out);

// The other way: reads the numbers of all layers from the tensors of a checkpoint. kUnsupported
// where a layer has none.
Result<std::vector<GgufKeyValue>> read_layer_numbers(const TensorSource& source,
                                                     const std::vector<KeyedTensor>& tensors,
                                                     const GgufArchitecture& architecture,
                                                     const ModelConfig& config);

}  // namespace ferry::converters
