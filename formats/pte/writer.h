// Plans .pte files: the FlatBuffer is made at once, the bytes of constants are placed by offset and
// written later by whoever has them. What is planned is what is written, to the byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/result.h"
#include "formats/pte/program.h"

namespace ferry::pte {

// Sizes of the data of a program.
struct DataSizes {
  // What Tensor::data_index refers to; entry 0 is the unused placeholder (0).
  std::vector<uint64_t> constants = {0};
  std::vector<uint64_t> initial = {0};
  // What Delegate::data and NamedData::data refer to; without a placeholder.
  std::vector<uint64_t> delegates = {};
  std::vector<uint64_t> named = {};
};

// One run of payload bytes in the file.
struct Piece {
  enum class Kind { kConstant, kInitial, kDelegate, kNamed } kind;
  uint32_t index;   // as in DataSizes
  uint64_t offset;  // absolute in the file
  uint64_t size;
};

struct Layout {
  std::vector<std::byte> head;  // everything before the first segment, padded
  std::vector<Piece> pieces;    // ascending offsets; gaps between them are zero bytes
  uint64_t file_bytes = 0;
};

// Constants are aligned to 16, segments to 128, as the official exporter does. A blob of a delegate
// and named data are a segment each.
Result<Layout> plan_program(const Program& program, const DataSizes& sizes);

}  // namespace ferry::pte
