// Writes the output of `ferry verify` as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "proof/bundle_proof.h"

namespace ferry::cli {

// `path` is the bundle as given on the line.
std::string to_json(const proof::Verification& verification, const std::string& path);
std::string to_text(const proof::Verification& verification);
// Returns a line for each reason why there is no parity; empty if there is parity.
std::vector<std::string> reasons(const proof::Verification& verification);
// Returns a text such as "1.23e-04", or "not finite".
std::string difference_text(double value);

}  // namespace ferry::cli
