// The names of keys in the configs of GPT-2 and CodeGen.
#pragma once

#include <vector>

#include "converters/config/json_fields.h"

namespace ferry::converters {

// The configuration class maps the common names to the n_ names, and a config may have both.
// num_key_value_heads cannot be stated, and head_dim only if `head_dim` is true.
inline std::vector<KeyNames> gpt_names(bool head_dim = false) {
  std::vector<KeyNames> names = {
      {"hidden_size", {"hidden_size", "n_embd"}},
      {"num_hidden_layers", {"num_hidden_layers", "n_layer"}},
      {"num_attention_heads", {"num_attention_heads", "n_head"}},
      {"max_position_embeddings", {"max_position_embeddings", "n_positions"}},
      {"intermediate_size", {"n_inner"}},
      {"rms_norm_eps", {"layer_norm_epsilon"}},
      {"num_key_value_heads", {}}};
  if (!head_dim) names.push_back({"head_dim", {}});
  return names;
}

}  // namespace ferry::converters
