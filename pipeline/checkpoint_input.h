// CheckpointInput: what `convert` was given, in the one form that the rest of the pipeline knows:
// the tensors under Hugging Face names, the text of a Hugging Face config.json, and the files that
// go into the bundle. The only place that knows which formats bring their own names and configs.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "converters/keys/key_rule.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "packer/bundle_writer.h"

namespace ferry::pipeline {

struct CheckpointInput {
  std::unique_ptr<TensorSource> source;
  std::string config;       // text of a config.json
  std::string config_name;  // what messages about it begin with: the file that it comes from
  std::string generation;   // text of a generation_config.json, or empty
  // For the bundle: config.json, then generation_config.json, tokenizer and processor files where
  // there are any; as they are, or as texts that an adapter made.
  std::vector<packer::CopiedFile> copied;
  std::vector<converters::KeyRule> format_rules;  // for keys that the format brings along
  std::vector<std::string> notes;  // lines for the user: what could not be carried over
  // What the format calls the keys of this model, where it has names of its own.
  std::unordered_map<std::string, std::string> stored_names;
};

// `path` is what open_checkpoint() takes. `config`, where not empty, is a config.json to use
// instead of the checkpoint's. kBadInput where there is no config.
Result<CheckpointInput> open_checkpoint_input(const std::string& path, const std::string& config);

}  // namespace ferry::pipeline
