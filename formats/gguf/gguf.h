// GGUF files as a TensorSource. Names are those of the file; shapes are row-major; tensors that are
// stored in blocks are handed out as f32, computed for each read from the blocks that it touches.
#pragma once

#include <memory>
#include <string>

#include "core/result.h"
#include "core/tensor_source.h"
#include "formats/gguf/metadata.h"

namespace ferry::formats {

struct GgufFile {
  std::unique_ptr<TensorSource> source;
  GgufMetadata metadata;  // refers to the header that the source holds
};

// kBadInput for a malformed file, kUnsupported for element types that we do not read (header.h). In
// files(), the header is all that precedes the tensor data. An entry's `bytes` are those of its
// values; for block types those in the file are its `encoded_bytes`.
Result<GgufFile> open_gguf(const std::string& path);

}  // namespace ferry::formats
