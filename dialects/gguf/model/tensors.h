// Gives the tensors of a GGUF file the keys of a Hugging Face checkpoint.
#pragma once

#include "converters/config/model_config.h"
#include "converters/keys/keyed_tensors.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "dialects/gguf/model/architecture.h"

namespace ferry::converters {

// Sizes of heads come from `config`, all other sizes from the stored shapes, which families check.
// A tensor that the architecture does not have gets its stored name behind "gguf:", which no rule
// of a family matches. The factors of RoPE make no weight: the caller has compared them with the
// config. kBadInput where the rows of a tensor are not those of the config's heads, for a tensor
// with a Hugging Face name, and for an ssm_a that is not negative. In the last two cases the writer
// of the file did not change the values as GGUF writers do, and undoing the change would be wrong.
Result<KeyedTensors> key_gguf_tensors(const TensorSource& source,
                                      const GgufArchitecture& architecture,
                                      const ModelConfig& config);

}  // namespace ferry::converters
