// Safetensors files as a TensorSource. Read with pread: a mapped file that shrinks raises SIGBUS.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/tensor_source.h"

namespace ferry {

// One file of a checkpoint. Its header has been checked; its data are read later.
struct SafetensorsFile {
  std::string path;  // to open it
  std::string name;  // relative to the checkpoint directory: SourceFile::name
};

// Opens all files, in this order, as one source. `display_path` is TensorSource::path(). kBadInput
// for a malformed file and for a tensor that is in two files.
Result<std::unique_ptr<TensorSource>> open_safetensors(const std::vector<SafetensorsFile>& files,
                                                       const std::string& display_path);

}  // namespace ferry
