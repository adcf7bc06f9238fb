// From a Program to a FlatBuffer. Not a public header.
#pragma once

#include <vector>

#include "formats/pte/flat_file.h"
#include "formats/pte/program.h"

namespace ferry::pte {

// Where the data lies, as the FlatBuffer states it. Entry 0 of the offsets is the placeholder.
struct DataTables {
  std::vector<ferry::wire::Range> segments;
  std::vector<uint64_t> constants = {0};  // offsets in segment 0
  std::vector<uint64_t> initial = {};     // offsets in segment 1; empty: no such segment
  // The segments of blobs and of named data.
  std::vector<uint32_t> delegates = {}, named = {};
};

// The finished FlatBuffer, without the extended header. Deterministic. Every vector and string that
// the runtime reads is present, though it may be empty.
std::vector<uint8_t> encode_program(const Program& program, const DataTables& tables);

}  // namespace ferry::pte
