// What a verification proves, in words.
#pragma once

#include <string>
#include <vector>

#include "proof/bundle_proof.h"

namespace ferry::cli {

// What a verdict of parity means, and what it does not.
struct Meaning {
  std::vector<std::string> proves, leaves_open;
};
Meaning meaning_of(const proof::Verification& verification);

// The precision that bounds belong to: "f32", "bf16".
std::string rounding_name(const proof::ParityBounds& bounds);

}  // namespace ferry::cli
