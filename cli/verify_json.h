// Writes members that the JSON of `ferry verify` and parity reports have in common.
#pragma once

#include "core/json_writer.h"
#include "proof/parity.h"
#include "proof/parity_report.h"

namespace ferry::cli {

// Writes the metrics as members of the open object.
void write_metrics(JsonWriter& json, const proof::LogitMetrics& metrics);

// Writes the members noise, bound, noise_ratio and margin, as null if no noise was measured.
void write_noise(JsonWriter& json, const proof::ValueMetrics& metrics);

}  // namespace ferry::cli
