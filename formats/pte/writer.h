// Plans .pte files: the FlatBuffer is made at once, while the bytes of constants are placed by
// offset and written later by whoever has them. The written file equals the plan to the byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/result.h"
#include "formats/pte/program.h"

namespace ferry::pte {

// The sizes of the data of a program.
struct DataSizes {
  // The sizes that Tensor::data_index refers to. Entry 0 is the unused placeholder (0).
  std::vector<uint64_t> constants = {0};
  std::vector<uint64_t> initial = {0};
  // The sizes that Delegate::data and NamedData::data refer to. There is no placeholder.
  std::vector<uint64_t> delegates = {};
  std::vector<uint64_t> named = {};
};

// One run of payload bytes in the file.
struct Piece {
  enum class Kind { kConstant, kInitial, kDelegate, kNamed } kind;
  uint32_t index;   // index into the vector of DataSizes
  uint64_t offset;  // position in the file
  uint64_t size;
};

struct Layout {
  std::vector<std::byte> head;  // all bytes before the first segment, padded
  std::vector<Piece> pieces;    // in ascending order of offsets; gaps between them are zero bytes
  uint64_t file_bytes = 0;
};

// Constants are aligned to 16 and segments to 128, as in files of the official exporter. Each blob
// of a delegate and each named data is a segment.
Result<Layout> plan_program(const Program& program, const DataSizes& sizes);

}  // namespace ferry::pte
