// From a verified FlatBuffer to a Program. Not a public header.
#pragma once

#include <string>

#include "core/result.h"
#include "formats/pte/program.h"

namespace ferry::pte {

namespace wire {
struct Program;
}

// Copies the methods out of `root`, whose FlatBuffer has `flat_bytes` bytes. Checks only what the
// Program type cannot hold: absent fields, unknown codes, several chains. `name` begins messages.
Result<Program> decode_program(const wire::Program& root, size_t flat_bytes,
                               const std::string& name);

}  // namespace ferry::pte
