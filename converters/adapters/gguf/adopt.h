// A GGUF file as a Hugging Face checkpoint: tensors, config and the files that go with them. The
// other headers of this directory are its parts.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <unordered_map>
#include <vector>

#include "converters/adapters/gguf/tokenizer.h"
#include "converters/keys/key_rule.h"
#include "core/result.h"
#include "core/tensor_source.h"

namespace ferry::converters {

struct AdoptedGguf {
  std::unique_ptr<TensorSource> source;
  std::string config;       // text of config.json
  std::string config_name;  // what messages about it begin with
  std::string generation;   // text of generation_config.json, or empty
  GgufTokenizer tokenizer;
  std::vector<KeyRule> format_rules;
  std::unordered_map<std::string, std::string> stored_names;  // as in MappingOptions
};

// `inner` has the tensors as they are in the file, `metadata` one member per key. `user_config` is
// the text of a config.json that adds to the metadata, or empty, `user_name` its path. Errors are
// those of config.h and tensors.h; kUnsupported for other architectures and for files that hold no
// model.
Result<AdoptedGguf> adopt_gguf(std::unique_ptr<TensorSource> inner, const nlohmann::json& metadata,
                               const std::string& user_config, const std::string& user_name);

}  // namespace ferry::converters
