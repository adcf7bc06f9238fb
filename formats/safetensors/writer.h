// Writes safetensors files. The written file equals the plan to the byte, and equal input gives
// equal bytes, which are those of the reference library 0.8: tensors of wide dtypes come first,
// then the order is by name; the header is padded with spaces to 8 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"

namespace ferry::formats {

struct TensorSpec {
  std::string name;  // unique, valid UTF-8
  DType dtype;
  Shape shape;
};

using SafetensorsMetadata = std::map<std::string, std::string>;

struct SafetensorsLayout {
  std::vector<std::byte> head;  // all bytes before the data
  std::vector<uint64_t>
      offsets;  // position of each tensor in the file, in the order of the argument
  uint64_t file_bytes = 0;
};

// kInternal for names or shapes that the format cannot represent.
Result<SafetensorsLayout> plan_safetensors(const std::vector<TensorSpec>& tensors,
                                           const SafetensorsMetadata& metadata = {});

struct TensorData {
  TensorSpec spec;
  std::span<const std::byte> bytes;  // little-endian, row-major; must outlive the call
};

// Writes and syncs a new file; kIo if `path` exists. On failure the file is removed.
Status write_safetensors(const std::string& path, const std::vector<TensorData>& tensors,
                         const SafetensorsMetadata& metadata = {});

}  // namespace ferry::formats
