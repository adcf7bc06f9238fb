// Writes the output of `ferry verify` as text and as JSON.
#pragma once

#include <string>
#include <vector>

#include "core/json_writer.h"
#include "proof/bundle_proof.h"
#include "proof/parity.h"
#include "proof/parity_report.h"

namespace ferry::cli {

// `path` is the bundle as given on the line.
std::string to_json(const proof::Verification& verification, const std::string& path);
std::string to_text(const proof::Verification& verification);
// Returns a line for each reason why there is no parity; empty if there is parity.
std::vector<std::string> reasons(const proof::Verification& verification);
// Returns a text such as "1.23e-04", or "not finite".
std::string difference_text(double value);

// -- members that the JSON of `ferry verify` and parity reports have in common (verify_json.cc)

// Writes the metrics as members of the open object.
void write_metrics(JsonWriter& json, const proof::LogitMetrics& metrics);

// Writes the members noise, bound, noise_ratio and margin, as null if no noise was measured.
void write_noise(JsonWriter& json, const proof::ValueMetrics& metrics);

}  // namespace ferry::cli
