// Converts a verified FlatBuffer to a Program. Private to formats/pte.
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

// Quotes a method's name for a message that holds other names too. The name is cut short, so that
// the line stays short even if every byte is escaped.
inline std::string short_quoted(std::string_view name) { return quoted(name.substr(0, 20)); }

// The places of blobs, by their index in the Program. The places are not checked.
struct BlobPlaces {
  struct Delegate {
    bool is_segment = false;  // if false, the blob is in a table of the program
    uint32_t index = 0;
    auto operator<=>(const Delegate&) const = default;
  };
  std::vector<Delegate> delegates;
  std::vector<uint32_t> named;  // indices of segments
};

struct DecodedProgram {
  Program program;
  BlobPlaces places;
};

// Copies the methods out of `root`, whose FlatBuffer has `flat_bytes` bytes. Checks only what the
// Program type cannot represent: absent fields, unknown codes, several chains. `name` begins the
// messages.
Result<DecodedProgram> decode_program(const wire::Program& root, size_t flat_bytes,
                                      const std::string& name);

}  // namespace ferry::pte
