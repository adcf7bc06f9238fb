// Bundles of the vision-language sample checkpoints in this process, and the outputs of the
// reference for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "packer/bundle_reader.h"
#include "tests/cli/checkpoints.h"

namespace ferry {

using Floats = std::vector<float>;
using Line = std::vector<std::string>;

Floats floats_of(const std::string& bytes);
std::string bytes_of(const Floats& values);
// Returns values in [-1, 1).
Floats randoms(size_t count, uint32_t seed);
// Returns the largest absolute difference; NaN where a value is NaN.
float furthest(const Floats& a, const Floats& b);

// Returns a tensor of the reference for vision/NAME.
Floats golden(const std::string& name, const std::string& tensor);
std::vector<int64_t> golden_ids(const std::string& name, const std::string& tensor);

// Converts `source`, in f32.
packer::Bundle converted(const TempDir& dir, const std::string& source, const Line& options,
                         ThreadPool& pool, const std::string& name = "bundle");

}  // namespace ferry
