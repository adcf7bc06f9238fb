// The tensors of a projector and the weights of a vision encoder: each made of the others.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "converters/config/model_config.h"
#include "converters/keys/keyed_tensors.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "dialects/gguf/projector/projector.h"
#include "graph/recipe.h"

namespace ferry::converters {

// Gives the tensors [first, end) of the source, those of a projector, the keys of a Hugging Face
// checkpoint. `config` is that of the whole model, whose tower is built. A tensor that the kind
// does not have gets its stored name behind "gguf:", which no rule of a family matches; tensors of
// sound are not used. kBadInput for tensors of other dimensions, and where some layer has a tensor
// that another one lacks.
Result<KeyedTensors> key_projector_tensors(const TensorSource& source, size_t first,
                                           const ProjectorKind& kind, const ModelConfig& config);

struct ProjectorWrittenTensor {
  std::string name;
  graph::Recipe recipe = {};              // in the shape of the file
  std::vector<std::string> weights = {};  // that it is made of
};

// Returns the tensors of a file, in the order in which the checkpoint has them. `weights` are those
// of the vision encoder. kUnsupported, by name, for a weight that has no place in the file.
Result<std::vector<ProjectorWrittenTensor>> write_projector_tensors(const TensorSource& source,
                                                                    const graph::StateDict& weights,
                                                                    const ProjectorKind& kind,
                                                                    const ModelConfig& config);

}  // namespace ferry::converters
