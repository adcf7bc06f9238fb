// What somebody may have meant by a path that leads to no checkpoint: advice for error messages.
#pragma once

#include <string>

#include "core/file.h"
#include "core/result.h"

namespace ferry::checkpoint {

// The snapshot in an entry of the Hugging Face cache ("models--ORG--NAME"): that of refs/main, or
// the only one, or "snapshots/REVISION" where there are several. Empty for other directories.
std::string snapshot_of_cache_entry(const std::string& directory);

// Whether `path` is written as a name on the Hugging Face hub: "Qwen/Qwen3-0.6B".
bool looks_like_hub_id(const std::string& path);

// Whether a file can be safetensors by its first bytes: a length, then a JSON object.
Result<bool> may_be_safetensors(const InputFile& file);

}  // namespace ferry::checkpoint
