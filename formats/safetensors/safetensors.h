// Presents safetensors files as a TensorSource. They are read with pread, because a mapped file
// that shrinks raises SIGBUS.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/tensor_source.h"
#include "formats/checkpoint_file.h"

namespace ferry::formats {

// Opens all files, in this order, as one source. Their headers are read and checked now, their data
// later. `display_path` is TensorSource::path(). kBadInput for a malformed file and for a tensor
// that is in two files. SourceFile::header is empty if it would have more than 16 MiB.
Result<std::unique_ptr<TensorSource>> open_safetensors(std::vector<CheckpointFile> files,
                                                       const std::string& display_path);

}  // namespace ferry::formats
