// From a verified FlatBuffer to a Program. Not a public header.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/text.h"
#include "formats/pte/program.h"

namespace ferry::pte {

namespace wire {
struct Program;
}

// A method's name in a message that holds other names too: cut short, so that the line stays short
// even if every byte is escaped.
inline std::string short_quoted(std::string_view name) { return quoted(name.substr(0, 20)); }

// Where blobs lie, by the index that the Program has for them. Not checked.
struct BlobPlaces {
  struct Delegate {
    bool is_segment = false;  // else one of the program's own tables
    uint32_t index = 0;
    auto operator<=>(const Delegate&) const = default;
  };
  std::vector<Delegate> delegates;
  std::vector<uint32_t> named;  // segments
};

struct DecodedProgram {
  Program program;
  BlobPlaces places;
};

// Copies the methods out of `root`, whose FlatBuffer has `flat_bytes` bytes. Checks only what the
// Program type cannot hold: absent fields, unknown codes, several chains. `name` begins messages.
Result<DecodedProgram> decode_program(const wire::Program& root, size_t flat_bytes,
                                      const std::string& name);

}  // namespace ferry::pte
