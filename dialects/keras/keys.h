// Maps the variables of a KerasHub backbone to the names and shapes of Hugging Face.
//
// Keras names a variable by its path through the objects of the model:
// "layers/qwen3_transformer_decoder_1/_feedforward_gate_dense/vars/0", where the first of several
// layers has no number. A whole task puts "layers/qwen3_backbone/" before it. Kernels are
// [in, out], and those of attention keep heads and head_dim apart.
// Source: KerasHub 0.31 and 0.32 and what they write; docs/keras.md.
#pragma once

#include "converters/config/model_config.h"
#include "converters/keys/keyed_tensors.h"
#include "core/result.h"
#include "core/tensor_source.h"

namespace ferry::converters {

// Returns whether the names are paths of Keras variables, those of .weights.h5 files.
bool has_keras_paths(const TensorSource& source);
// Returns whether there is an output matrix beside the embedding.
bool has_keras_head(const TensorSource& source);

// Returns the variables that the table of the family has, under the keys and in the shapes of
// Hugging Face. Other entries keep their names, and map_keys() reports them. kUnsupported for
// families without a table, for quantised and for LoRA files. kBadInput where a variable has
// another shape than the config says, or where two paths mean the same tensor. Messages name the
// paths of the file.
Result<KeyedTensors> key_keras_tensors(const TensorSource& source, const ModelConfig& config);

}  // namespace ferry::converters
