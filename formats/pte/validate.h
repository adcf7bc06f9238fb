// Validation of a Program in memory, the same for what was read and for what is to be written. Not
// a public header.
#pragma once

#include <string>

#include "core/result.h"
#include "formats/pte/program.h"
#include "formats/pte/writer.h"  // DataSizes

namespace ferry::pte {

// Tensors that mean something of any size are refused beyond these: no real program comes near.
inline constexpr size_t kMaxRank = 16;
inline constexpr uint64_t kMaxMemoryBytes = uint64_t{1} << 48;

// Every promise of reader.h about indices, sizes, lists and instructions. `extents` holds the bytes
// that are there from the start of each constant and initial contents. kBadInput for what is
// malformed, kUnsupported for what is well formed but not for us.
Status validate_program(const Program& program, const DataSizes& extents, const std::string& name);

}  // namespace ferry::pte
