// The output of `ferry verify`, as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "proof/bundle_proof.h"

namespace ferry::cli {

// `path`: the bundle, as given.
std::string to_json(const proof::Verification& verification, const std::string& path);
std::string to_text(const proof::Verification& verification);
// A line for each reason why there is no parity; empty at parity.
std::vector<std::string> reasons(const proof::Verification& verification);
// "1.23e-04", or "not finite".
std::string difference_text(double value);

}  // namespace ferry::cli
