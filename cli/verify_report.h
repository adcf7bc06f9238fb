// What `ferry verify` says, as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "pipeline/verify.h"

namespace ferry::cli {

// `path`: the bundle, as given.
std::string to_json(const pipeline::Verification& verification, const std::string& path);
std::string to_text(const pipeline::Verification& verification);
// A line for each reason why there is no parity; empty at parity.
std::vector<std::string> reasons(const pipeline::Verification& verification);

}  // namespace ferry::cli
