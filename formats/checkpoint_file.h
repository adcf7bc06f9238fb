// Types and checks that the readers of several checkpoint formats share.
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
  std::string name;  // SourceFile::name: relative to the checkpoint directory
};
// Returns the files of a checkpoint that consists of one file.
std::vector<CheckpointFile> one_file(InputFile file, std::string name);

// Returns whether an index may hold `name` as a file name: it must not lead out of the directory of
// the index.
bool is_index_file_name(std::string_view name);

// Returns kBadInput if a tensor is in two files.
Status check_unique_names(const TensorSource& source);

}  // namespace ferry::formats
