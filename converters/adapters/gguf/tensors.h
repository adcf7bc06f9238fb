// The tensors of a GGUF file under the names, shapes and orders of a Hugging Face checkpoint.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "converters/adapters/gguf/architecture.h"
#include "converters/config/model_config.h"
#include "converters/keys/key_rule.h"
#include "core/result.h"
#include "core/tensor_source.h"

namespace ferry::converters {

// Sizes of heads come from `config`; everything else from the stored shapes, which families check.
// Tensors that the architecture does not have keep their stored name behind "gguf:", which no rule
// of a family matches. kBadInput where rows are not those of the config's heads, for a tensor with
// a Hugging Face name, and for an ssm_a that is not negative: whoever wrote such files did not
// adjust values as GGUF writers do, and undoing it would be wrong.
Result<std::unique_ptr<TensorSource>> present_gguf_tensors(std::unique_ptr<TensorSource> inner,
                                                           const GgufArchitecture& architecture,
                                                           const ModelConfig& config);

// What GGUF calls the Hugging Face keys of this model, for messages about keys that are not there.
std::unordered_map<std::string, std::string> gguf_stored_names(const GgufArchitecture& architecture,
                                                               const ModelConfig& config);

// Rules for what families do not know; the factors of RoPE must have been checked.
std::vector<KeyRule> gguf_format_rules();

}  // namespace ferry::converters
