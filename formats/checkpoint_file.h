// What the readers of several checkpoint formats share.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"
#include "core/tensor_source.h"

namespace ferry::formats {

// One file of a checkpoint, to be opened.
struct CheckpointFile {
  std::string path;  // to open it
  std::string name;  // relative to the checkpoint directory: SourceFile::name
};

// A file name as indexes may hold it: nothing that leads out of the directory of the index.
bool is_index_file_name(std::string_view name);

// kBadInput for a tensor that is in two files.
Status check_unique_names(const TensorSource& source);

}  // namespace ferry::formats
