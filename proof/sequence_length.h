// How long sequences can be that a bundle runs, from its manifest.
#pragma once

#include <cstdint>

#include "packer/manifest.h"

namespace ferry::proof {

// Tokens of a call of kv_forward; 1 where the manifest does not say.
int64_t decode_length(const packer::Manifest& manifest);
// Positions that a sequence can have: the context, less the columns that a call of kv_forward needs
// for its own tokens where programs are static.
int64_t longest_sequence(const packer::Manifest& manifest);

}  // namespace ferry::proof
