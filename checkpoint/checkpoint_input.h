// open_checkpoint_input() brings a checkpoint of any format into one form: tensors with Hugging
// Face keys, the text of a Hugging Face config.json, and the files for the bundle. It is the only
// place that knows which formats have their own names and configs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "converters/keys/keyed_tensors.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "packer/bundle_plan.h"

namespace ferry::checkpoint {

struct CheckpointInput {
  std::unique_ptr<TensorSource> source;
  converters::KeyedTensors tensors;  // recipes over `source`
  std::string config;                // text of a config.json
  std::string
      config_name;  // name that begins messages about the config: the file that it comes from
  std::string generation;  // text of a generation_config.json, or empty
  // Files for the bundle: config.json, then generation_config.json, tokenizer and processor files
  // where there are any; as they are, or as texts that an adapter made. Last come README, licences
  // and the like.
  std::vector<packer::CopiedFile> copied;
  // The directory of a checkpoint with Hugging Face names; else empty.
  std::string directory = {};
  std::vector<std::string> notes;  // lines for the user about files that could not be carried over
};

// `path` is that of open_checkpoint(). `config`, where not empty, is a config.json to use instead
// of the checkpoint's; `lora`, where not empty, is the directory of an adapter that is merged into
// the tensors. kBadInput where there is no config.
Result<CheckpointInput> open_checkpoint_input(const std::string& path, const std::string& config,
                                              const std::string& lora);

}  // namespace ferry::checkpoint
