// What precedes the tensor data of a GGUF file: counts, key/value pairs, tensor infos.
//
// Little-endian files of version 2 and 3. Beyond what the format says we require:
//   G1 every count and length fits into the bytes that the file has left, before anything is done
//      with it; the header is at most 64 MiB and has at most 65,536 keys and as many tensors
//   G2 keys and tensor names are unique, not empty and printable: valid UTF-8 without control
//      characters, quotes, backslashes and invisible characters; a key has at most 65,535 bytes, a
//      tensor name at most 63, as in ggml
//   G3 arrays of arrays are refused
//   G4 `general.alignment` is a u32 and a power of two
//   G5 rows are whole blocks, the number of elements is below 2^63, no more than 4 dimensions
//   G6 the data of each tensor begin where those of the one before end, after padding to the
//      alignment, as in ggml: no holes, no overlaps; nothing but padding follows the last one
// The bytes of paddings are not looked at, nor are those of strings.
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
  std::vector<std::byte> bytes;  // of the file, up to the data
  std::vector<GgufItem> items;
  std::vector<GgufTensor> tensors;  // by offset, then size, then name
};

// Fills `out` from the file at `offset`; asked for ranges inside of the file only.
using GgufRead = std::function<Status(uint64_t offset, std::span<std::byte> out)>;

// `name` begins the messages. kUnsupported for tensors of types that we do not read, other versions
// and big-endian files, else kBadInput, or an error of `read`.
Result<GgufHeader> read_gguf_header(const GgufRead& read, uint64_t file_bytes,
                                    const std::string& name);

}  // namespace ferry::formats
