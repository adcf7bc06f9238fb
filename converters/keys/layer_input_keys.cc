// The keys of the embeddings for each layer (blocks/layer_inputs.h).
#include "converters/blocks/layer_inputs.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {

std::vector<KeyRule> layer_input_rules(const std::string& prefix) {
  return rename_rules(
      prefix,
      {{"embed_tokens_per_layer.weight", "layer_inputs.embeddings.weight"},
       {"per_layer_model_projection.weight", "layer_inputs.projection.weight"},
       {"per_layer_projection_norm.weight", "layer_inputs.norm.weight"},
       {"layers.{i}.per_layer_input_gate.weight", "layers.{i}.layer_input.gate.weight"},
       {"layers.{i}.per_layer_projection.weight", "layers.{i}.layer_input.projection.weight"},
       {"layers.{i}.post_per_layer_input_norm.weight", "layers.{i}.layer_input.norm.weight"}});
}

}  // namespace ferry::converters
