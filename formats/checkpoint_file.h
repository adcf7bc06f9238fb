// What the readers of several checkpoint formats share.
#pragma once

#include <string>

#include "core/result.h"
#include "core/tensor_source.h"

namespace ferry {

// One file of a checkpoint, to be opened.
struct CheckpointFile {
  std::string path;  // to open it
  std::string name;  // relative to the checkpoint directory: SourceFile::name
};

// kBadInput for a tensor that is in two files.
Status check_unique_names(const TensorSource& source);

}  // namespace ferry
