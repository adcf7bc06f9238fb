// Members of the JSON of `ferry verify` that its parity reports have too.
#pragma once

#include "core/json_writer.h"
#include "proof/parity.h"
#include "proof/parity_report.h"

namespace ferry::cli {

// The members of an open object.
void write_metrics(JsonWriter& json, const proof::LogitMetrics& metrics);

// noise, bound, noise_ratio and margin; null where no noise was measured.
void write_noise(JsonWriter& json, const proof::ValueMetrics& metrics);

}  // namespace ferry::cli
