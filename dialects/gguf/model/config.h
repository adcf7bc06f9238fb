// Makes the text of a Hugging Face config.json for a GGUF file, of its metadata and of a
// config.json that a user adds.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "converters/config/model_config.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "dialects/gguf/model/architecture.h"

namespace ferry::converters {

struct GgufConfigInput {
  const GgufArchitecture* architecture = nullptr;
  const nlohmann::json* metadata = nullptr;  // one member per key of the file
  const TensorSource* tensors = nullptr;     // under their stored names; path() begins messages
  std::string user_config = {};              // text of a config.json, or empty
  std::string user_name = {};                // path of the user's config
};

struct GgufConfig {
  std::string text;  // text of config.json
  std::string name;  // name that begins messages about the config
  ModelConfig parsed;
};

// Keys of the metadata win over defaults. The user's config wins over both, where it does not
// contradict what the file says about its tensors. kBadInput for missing keys, with their names,
// for values of the wrong kind, and for a contradiction, also with rope_freqs.weight. kUnsupported
// for RoPE scaling and heads that are not supported.
Result<GgufConfig> make_gguf_config(const GgufConfigInput& input);

}  // namespace ferry::converters
