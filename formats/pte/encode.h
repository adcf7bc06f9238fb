// Converts a Program to a FlatBuffer. Private to formats/pte.
#pragma once

#include <vector>

#include "formats/pte/flat_file.h"
#include "formats/pte/program.h"

namespace ferry::pte {

// The places of the data, as the FlatBuffer states them. Entry 0 of the offsets is the placeholder.
struct DataTables {
  std::vector<ferry::wire::Range> segments;
  std::vector<uint64_t> constants = {0};  // offsets in segment 0
  std::vector<uint64_t> initial = {};  // offsets in segment 1; if empty, there is no such segment
  // The segments of blobs and of named data, respectively.
  std::vector<uint32_t> delegates = {}, named = {};
};

// Returns the finished FlatBuffer, without the extended header. The result is deterministic. Every
// vector and string that the runtime reads is present, though it may be empty.
std::vector<uint8_t> encode_program(const Program& program, const DataTables& tables);

}  // namespace ferry::pte
