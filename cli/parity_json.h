// Members that the documents of verify and its reports share.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_writer.h"
#include "proof/parity.h"

namespace ferry::cli {

// The members of an open object.
void write_metrics(JsonWriter& json, const proof::LogitMetrics& metrics);

// null where there is none.
void write_optional(JsonWriter& json, std::string_view name, const std::optional<double>& value);
void write_lines(JsonWriter& json, std::string_view name, const std::vector<std::string>& lines);

}  // namespace ferry::cli
