// What `ferry verify --perplexity` says, as text and as JSON.
#pragma once

#include <string>

#include "core/json_writer.h"
#include "proof/bundle_perplexity.h"

namespace ferry::cli {

// `path`: the bundle, as given.
std::string to_json(const proof::PerplexityReport& report, const std::string& path);
// The same as the member `perplexity` of an open object.
void write_perplexity(JsonWriter& json, const proof::PerplexityReport& report);
std::string to_text(const proof::PerplexityReport& report);

}  // namespace ferry::cli
