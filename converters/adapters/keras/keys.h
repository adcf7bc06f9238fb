// The variables of a KerasHub backbone under the names and in the shapes of Hugging Face.
//
// Keras names a variable by its path through the objects of the model:
// "layers/qwen3_transformer_decoder_1/_feedforward_gate_dense/vars/0", where the first of several
// layers has no number. A whole task puts "layers/qwen3_backbone/" before it. Kernels are
// [in, out], and those of attention keep heads and head_dim apart.
// Source: KerasHub 0.31 and what it writes; docs/keras.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "converters/adapters/strided_source.h"
#include "converters/config/model_config.h"
#include "core/result.h"
#include "core/tensor_source.h"

namespace ferry::converters {

// Whether the names are paths of Keras variables, those of .weights.h5 files.
bool has_keras_paths(const TensorSource& source);
// Whether there is an output matrix beside the embedding.
bool has_keras_head(const TensorSource& source);

// The tensors that the table of the family knows, as Hugging Face has them. The other entries stay
// what they are, for map_keys to report. kUnsupported for families
// without a table, quantised and LoRA files; kBadInput where a variable has another shape than the
// config says or where two paths mean the same tensor. Messages name the stored paths.
Result<std::vector<StridedTensor>> keras_tensors(const TensorSource& source,
                                                 const ModelConfig& config);

// The path of every Hugging Face key of this model, as a backbone's file has it.
std::unordered_map<std::string, std::string> keras_paths(const ModelConfig& config);

}  // namespace ferry::converters
