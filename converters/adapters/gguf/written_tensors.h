// The tensors of a GGUF file of a model: names, shapes and values as GGUF writers make them of a
// Hugging Face checkpoint. The reverse of tensors.h, from the same table.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "converters/adapters/gguf/architecture.h"
#include "converters/config/model_config.h"
#include "converters/keys/key_rule.h"
#include "converters/keys/keyed_tensors.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "graph/recipe.h"

namespace ferry::converters {

struct GgufWrittenTensor {
  std::string name;
  graph::Recipe recipe;              // of the values, in the dtype of the checkpoint or f32
  std::vector<size_t> made_of = {};  // indices into KeyedTensors::tensors
};

// In the order of llama.cpp's converter: that of the checkpoint; the experts of a layer where the
// last of them is. `mapping` is what map_keys() said about `keyed`: tensors that make no weight,
// and a head that the config ties to the embedding, are left out. kUnsupported, by name, for a
// tensor that has no place in GGUF.
Result<std::vector<GgufWrittenTensor>> write_gguf_tensors(const TensorSource& source,
                                                          const KeyedTensors& keyed,
                                                          const MappingReport& mapping,
                                                          const GgufArchitecture& architecture,
                                                          const ModelConfig& config);

// Frequencies that are divided by factors: rope_freqs.weight, or the two tensors of longrope.
struct GgufRopeTensor {
  std::string name;
  std::vector<float> values;
};
std::vector<GgufRopeTensor> gguf_rope_tensors(const ModelConfig& config);

}  // namespace ferry::converters
