// The part of a GGUF file before the tensor data: counts, key/value pairs, tensor infos.
//
// Little-endian files of version 2 and 3 are read. Beyond what the format says Ferry requires:
//   G1 Every count and length fits into the bytes that the file has left, which is checked before
//      it is used. The header is at most 64 MiB and has at most 65,536 keys and as many tensors.
//   G2 Keys and tensor names are unique, not empty and printable: valid UTF-8 without control
//      characters, quotes, backslashes and invisible characters. A key has at most 65,535 bytes, a
//      tensor name at most 63, as in ggml.
//   G3 Arrays of arrays are refused.
//   G4 `general.alignment` is a u32 and a power of two.
//   G5 Rows are whole blocks, the number of elements is below 2^63, and there are at most 4
//      dimensions.
//   G6 The data of each tensor begin where those of the tensor before end, after padding to the
//      alignment, as in ggml: there are no holes and no overlaps, and nothing but padding follows
//      the last one.
// The bytes of paddings are not checked, nor are those of strings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/tensor_source.h"
#include "dialects/gguf/file/dequant.h"
#include "dialects/gguf/file/metadata.h"

namespace ferry::formats {

inline constexpr uint64_t kMaxGgufHeaderBytes = uint64_t{64} << 20;

struct GgufTensor {
  // The shape is row-major: the dimensions of the file in reverse.
  TensorEntry entry;
  const GgufType* type = nullptr;
};

struct GgufHeader {
  std::vector<std::byte> bytes;  // bytes of the file, up to the data
  std::vector<GgufItem> items;
  std::vector<GgufTensor> tensors;  // by offset, then size, then name
};

// Fills `out` from the file at `offset`. It is asked for ranges inside of the file only.
using GgufRead = std::function<Status(uint64_t offset, std::span<std::byte> out)>;

// `name` begins the messages. kUnsupported for tensors of types that Ferry does not read, other
// versions and big-endian files, else kBadInput, or an error of `read`.
Result<GgufHeader> read_gguf_header(const GgufRead& read, uint64_t file_bytes,
                                    const std::string& name);

}  // namespace ferry::formats
