// What the readers of several checkpoint formats share.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/result.h"
#include "core/tensor_source.h"

namespace ferry::formats {

// One open file of a checkpoint.
struct CheckpointFile {
  InputFile file;
  std::string name;  // relative to the checkpoint directory: SourceFile::name
};
// A checkpoint of one file.
std::vector<CheckpointFile> one_file(InputFile file, std::string name);

// A file name as indexes may hold it: nothing that leads out of the directory of the index.
bool is_index_file_name(std::string_view name);

// kBadInput for a tensor that is in two files.
Status check_unique_names(const TensorSource& source);

}  // namespace ferry::formats
