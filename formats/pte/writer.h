// Plans .pte files: the FlatBuffer is made at once, the bytes of constants are placed by offset and
// written later by whoever has them. What is planned is what is written, to the byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/result.h"
#include "formats/pte/program.h"

namespace ferry::pte {

// Sizes of the data that Tensor::data_index refers to; entry 0 is the unused placeholder (0).
struct DataSizes {
  std::vector<uint64_t> constants = {0};
  std::vector<uint64_t> initial = {0};
};

// One run of payload bytes in the file.
struct Piece {
  enum class Kind { kConstant, kInitial } kind;
  uint32_t index;   // as in DataSizes
  uint64_t offset;  // absolute in the file
  uint64_t size;
};

struct Layout {
  std::vector<std::byte> head;  // everything before the first segment, padded
  std::vector<Piece> pieces;    // ascending offsets; gaps between them are zero bytes
  uint64_t file_bytes = 0;
};

// Constants are aligned to 16, segments to 128, as the official exporter does.
Result<Layout> plan_program(const Program& program, const DataSizes& sizes);

}  // namespace ferry::pte
