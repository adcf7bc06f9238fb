// Parts of ModelTypes (model_type.h) that several families share: names of keys, checks of heads,
// readers of experts.
#pragma once

#include <cstdint>
#include <vector>

#include "converters/config/json_fields.h"
#include "converters/config/model_config.h"

namespace ferry::converters {

// Names of keys in the configs of GPT-2 and CodeGen. The configuration class maps the common names
// to the n_ names, and a config may have both. num_key_value_heads cannot be stated, and head_dim
// only if `head_dim` is true.
std::vector<KeyNames> gpt_names(bool head_dim = false);

// A ModelType::read for types whose heads together are as wide as the hidden state. Returns
// kBadInput for another head_dim.
Status check_whole_heads(const JsonFields& fields, ModelConfig& config);
// Returns kBadInput unless the heads make `blocks` blocks of equal size.
Status check_head_blocks(const JsonFields& fields, const ModelConfig& config, int64_t blocks);
// Reads rotary_dim, which must be stated, even, and at most head_dim.
Status read_rotary_dim(const JsonFields& fields, ModelConfig& config);

// -- the experts of DeepSeek V2 and V3, and of GLM 4.5

// A member of ModelConfig::numbers: the layers behind those of the decoder that predict further
// tokens.
inline constexpr const char* kPredictionLayers = "prediction_layers";

// The readers need the sizes of the routed experts. They do nothing for a model without experts.

// Reads the shared experts, the scale of the chosen scores, and the number of prediction layers.
Status read_deepseek_experts(const JsonFields& fields, ModelConfig& config);
// Reads n_group and topk_group. The score of a group is the sum of its `best` best experts.
Status read_expert_groups(const JsonFields& fields, ModelConfig& config, int64_t best);
// Reads the scale of the chosen scores and the number of shared experts under the name `shared`,
// for models whose scores are sigmoids and where a bias takes part in the choice, without groups.
Status read_one_group(const JsonFields& fields, ModelConfig& config, std::string_view shared);
// Reads all of the above, for models whose scores are sigmoids and where a bias takes part in the
// choice.
Status read_sigmoid_experts(const JsonFields& fields, ModelConfig& config);

}  // namespace ferry::converters
