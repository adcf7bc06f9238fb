// Validation of the instructions of a method whose values have passed. Not a public header.
#pragma once

#include <string>

#include "core/result.h"
#include "formats/pte/program.h"

namespace ferry::pte {

// A tensor outside of the program's planned memory that cannot be written.
inline bool is_constant(const Tensor& tensor) {
  return !tensor.allocation && (tensor.external || tensor.data_index > 0);
}

// Operators, argument counts and kinds, results, destinations, and that nothing but planned memory
// and unplanned outputs is ever written. `file` begins the messages.
Status check_instructions(const Method& method, const std::string& file);

}  // namespace ferry::pte
