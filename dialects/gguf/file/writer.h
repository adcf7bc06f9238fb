// lay_out_gguf() plans a GGUF file of version 3 to the byte: what precedes the tensor data, and
// where each tensor lies. gguf_parts() says which tensors go into which file of several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/gguf_key_value.h"
#include "core/result.h"
#include "core/shape.h"

namespace ferry::formats {

struct GgufTensorInfo {
  std::string name;
  Shape shape = {};        // row-major, of elements; the file has the dimensions in reverse
  uint32_t type = 0;       // id, see find_gguf_type()
  uint64_t bytes() const;  // 0 where the type is unknown or rows are not whole blocks
};

struct GgufLayout {
  std::vector<std::byte> head;    // up to the data of the first tensor
  std::vector<uint64_t> offsets;  // of each tensor, in the file
  uint64_t file_bytes = 0;        // the padding behind the last tensor is part of the file
};

// Keys and tensors in their order. kUnsupported, by name, for what readers refuse: names that are
// taken, empty or too long, more than four dimensions, types and rows that do not fit.
Result<GgufLayout> lay_out_gguf(std::span<const GgufKeyValue> keys,
                                std::span<const GgufTensorInfo> tensors);

// How many of the tensors go into each file, as llama.cpp's converter splits: a file ends where the
// next tensor would take its tensors beyond `max_bytes`, and at `max_tensors`. 0: unlimited. Every
// file has at least one tensor.
std::vector<size_t> gguf_parts(std::span<const GgufTensorInfo> tensors, uint64_t max_bytes,
                               uint64_t max_tensors);
// The keys of one of several files, which only the first one has others before. `part` counts from
// 0.
std::vector<GgufKeyValue> gguf_split_keys(size_t part, size_t parts, size_t tensors);

}  // namespace ferry::formats
