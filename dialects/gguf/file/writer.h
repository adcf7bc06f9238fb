// lay_out_gguf() plans a GGUF file of version 3 to the byte: the part before the tensor data, and
// where each tensor lies. gguf_parts() says which tensors go into which file of several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/gguf_key_value.h"
#include "core/result.h"

namespace ferry::formats {

struct GgufTensorInfo {
  std::string name;
  Shape shape = {};        // row-major, in elements; the file has the dimensions in reverse
  uint32_t type = 0;       // id, see find_gguf_type()
  uint64_t bytes() const;  // 0 where the type is unknown or rows are not whole blocks
};

struct GgufLayout {
  std::vector<std::byte> head;    // all bytes up to the data of the first tensor
  std::vector<uint64_t> offsets;  // offset of each tensor in the file
  uint64_t file_bytes = 0;        // includes the padding behind the last tensor
};

// Keys and tensors keep their order. kUnsupported, by name, for files that readers refuse: names
// that are taken, empty or too long, more than four dimensions, types and rows that do not fit.
Result<GgufLayout> lay_out_gguf(std::span<const GgufKeyValue> keys,
                                std::span<const GgufTensorInfo> tensors);

// Returns how many of the tensors go into each file, as llama.cpp's converter splits. A file ends
// where the next tensor would take its tensors beyond `max_bytes`, and at `max_tensors`. 0:
// unlimited. Every file has at least one tensor.
std::vector<size_t> gguf_parts(std::span<const GgufTensorInfo> tensors, uint64_t max_bytes,
                               uint64_t max_tensors);
// Returns the split keys of one of several files. In the first file other keys precede them. `part`
// counts from 0.
std::vector<GgufKeyValue> gguf_split_keys(size_t part, size_t parts, size_t tensors);

}  // namespace ferry::formats
