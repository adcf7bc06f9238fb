// open_gguf() opens a GGUF file as a TensorSource. Names are those of the file, shapes are
// row-major. Quantised tensors are read as they are stored: TensorEntry::encoding decodes them.
#pragma once

#include <memory>
#include <string>

#include "core/file.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "dialects/gguf/file/metadata.h"
#include "dialects/gguf/file/split.h"

namespace ferry::formats {

struct GgufFile {
  std::unique_ptr<TensorSource> source;
  GgufMetadata metadata;  // refers to the header that the source holds
};

// Opens a checkpoint. If it is split, `file` is the first part, and `open_part` opens the others by
// plain names. kBadInput for a malformed file and for files that do not belong together.
// kUnsupported for element types that Ferry does not read (header.h), and for one file of several
// that is not the first. In files(), the header is all that precedes the tensor data.
Result<GgufFile> open_gguf(InputFile file, const OpenGgufPart& open_part);
Result<GgufFile> open_gguf(const std::string& path);

}  // namespace ferry::formats
