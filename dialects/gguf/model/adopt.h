// adopt_gguf() turns a GGUF file into a Hugging Face checkpoint: tensors, config and the files that
// belong to them. The other headers of this directory are its parts.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "converters/keys/keyed_tensors.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "dialects/gguf/model/tokenizer.h"

namespace ferry::converters {

struct AdoptedGguf {
  KeyedTensors tensors;
  std::string config;       // text of config.json
  std::string config_name;  // name that begins messages about the config
  std::string generation;   // text of generation_config.json, or empty
  GgufTokenizer tokenizer;
};

// `source` has the tensors as they are in the file, `metadata` one member per key. `user_config` is
// the text of a config.json that adds to the metadata, or empty, `user_name` its path. Errors are
// those of config.h and tensors.h. kUnsupported for other architectures and for files that hold no
// model.
Result<AdoptedGguf> adopt_gguf(const TensorSource& source, const nlohmann::json& metadata,
                               const std::string& user_config, const std::string& user_name);

}  // namespace ferry::converters
