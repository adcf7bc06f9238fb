// merge_adapter() reads an adapter in peft's format and merges it into a checkpoint's tensors.
#pragma once

#include <string>

#include "checkpoint/checkpoint_input.h"
#include "core/result.h"

namespace ferry::checkpoint {

// `path` is a directory with adapter_config.json and adapter_model.safetensors or .bin. Both become
// files of the source, so that their digests are stated with those of the checkpoint. Errors are
// those of merge_lora().
Status merge_adapter(CheckpointInput& input, const std::string& path);

}  // namespace ferry::checkpoint
