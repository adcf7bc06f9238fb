// Validation of a Program in memory. Reader and writer use the same rules. Private to formats/pte.
#pragma once

#include <string>

#include "core/result.h"
#include "formats/pte/program.h"
#include "formats/pte/writer.h"  // DataSizes

namespace ferry::pte {

// Tensors beyond these limits are refused; no real program comes near them.
inline constexpr size_t kMaxRank = 16;
inline constexpr uint64_t kMaxMemoryBytes = uint64_t{1} << 48;

// Checks every promise of reader.h about indices, sizes, lists and instructions. `extents` holds
// the bytes that are available from the start of each constant and each initial contents. kBadInput
// for a malformed program, kUnsupported for a well-formed one that Ferry does not support.
Status validate_program(const Program& program, const DataSizes& extents, const std::string& name);

// Returns whether a tensor is outside of the program's planned memory and cannot be written.
inline bool is_constant(const Tensor& tensor) {
  return !tensor.allocation && (tensor.external || tensor.data_index > 0);
}

// Checks operators, the number and kinds of their arguments, results and jump destinations, and
// that instructions write only planned memory and unplanned outputs. `file` begins the messages.
Status check_instructions(const Method& method, const std::string& file);

}  // namespace ferry::pte
