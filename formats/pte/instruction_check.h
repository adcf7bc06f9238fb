// Validates the instructions of a method whose values have been validated. Private to formats/pte.
#pragma once

#include <string>

#include "core/result.h"
#include "formats/pte/program.h"

namespace ferry::pte {

// Returns whether a tensor is outside of the program's planned memory and cannot be written.
inline bool is_constant(const Tensor& tensor) {
  return !tensor.allocation && (tensor.external || tensor.data_index > 0);
}

// Checks operators, the number and kinds of their arguments, results and jump destinations, and
// that instructions write only planned memory and unplanned outputs. `file` begins the messages.
Status check_instructions(const Method& method, const std::string& file);

}  // namespace ferry::pte
