// Reads the buffers of a decoder that keep something between calls, such as caches and states.
#pragma once

#include <string>
#include <vector>

#include "core/result.h"
#include "runner/program_set.h"

namespace ferry::runner {

// Returns a buffer by its name in the manifest, as the programs store it; valid until the next
// call. kUsage if there is none.
Result<TensorView> stored_buffer(const MethodChain& chain, const std::string& name);

// Returns the values of a buffer in f16, or of a cache of i8 rows by its scales and zero points.
// kBadInput where these do not fit the rows.
Result<std::vector<float>> decoded_buffer(const MethodChain& chain, const std::string& name);

}  // namespace ferry::runner
