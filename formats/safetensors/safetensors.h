// Presents safetensors files as a TensorSource. They are read with pread, because a mapped file
// that shrinks raises SIGBUS.
//
// A file begins with 8 bytes that hold the little-endian length N, and N bytes of
// JSON, the header. The tensor data follow.
//
// The result equals that of the reference library 0.8 for every input, except that Ferry is
// stricter:
//   S1 a name that occurs twice is refused, also when both occurrences agree
//   S2 a tensor has exactly the fields dtype, shape and data_offsets; any other is refused
//   S3 a dimension, and the number of elements, is below 2^63 (formed from left to right)
//   S4 a tensor has at most 64 dimensions, a file at most 1,000,000 tensors, __metadata__ at most
//      65,536 keys
//   S5 a tensor and a key of __metadata__ are written as JSON objects and strings, nothing else
//   S6 a NUL byte anywhere in the header is refused
//   S7 a string or a number of the JSON is written in at most 16 MiB
// As in the reference: white space may surround the JSON, data need not be aligned, tensors of no
// elements may lie between others but not inside one, and the data must cover the rest of the file
// without holes, overlaps and trailing bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "core/tensor_source.h"
#include "formats/file_tensor_source.h"

namespace ferry::formats {

inline constexpr uint64_t kSafetensorsPrefixBytes = 8;
inline constexpr uint64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// Returns the length of the JSON from the first bytes of the file: `start` holds the first
// min(file_bytes, 64) bytes or more. `name` begins the messages. Allocates nothing, so that a false
// length costs nothing.
Result<uint64_t> safetensors_header_bytes(std::span<const std::byte> start, uint64_t file_bytes,
                                          const std::string& name);

// Parses and validates the JSON after the length, which has `json_bytes` bytes, and returns its
// tensors in the order of offset, then size, then name. Offsets are from the start of the file.
// `file` becomes TensorEntry::file.
Result<std::vector<TensorEntry>> parse_safetensors_header(const JsonPieces& json,
                                                          uint64_t json_bytes, uint64_t file_bytes,
                                                          const std::string& name,
                                                          uint32_t file = 0);
Result<std::vector<TensorEntry>> parse_safetensors_header(std::span<const std::byte> json,
                                                          uint64_t file_bytes,
                                                          const std::string& name,
                                                          uint32_t file = 0);

// Opens all files, in this order, as one source. Their headers are read and checked now, their data
// later. `display_path` is TensorSource::path(). kBadInput for a malformed file and for a tensor
// that is in two files. SourceFile::header is empty if it would have more than 16 MiB.
Result<std::unique_ptr<TensorSource>> open_safetensors(std::vector<CheckpointFile> files,
                                                       const std::string& display_path);

}  // namespace ferry::formats
