// Members that the documents of verify and its reports share.
#pragma once

#include "core/json_writer.h"
#include "proof/parity.h"

namespace ferry::cli {

// The members of an open object.
void write_metrics(JsonWriter& json, const proof::LogitMetrics& metrics);

}  // namespace ferry::cli
