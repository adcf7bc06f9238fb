// What `ferry check` says of a signature.
#pragma once

#include <string>
#include <vector>

#include "core/json_writer.h"
#include "core/result.h"
#include "signing/check_model.h"

namespace ferry::cli {

// Members of an object that is open: "signature" and "files".
void write_signature_check(JsonWriter& json, const signing::ModelCheck& check);

// Where it verified: who signed, and what the signature is not about.
std::string describe_signature(const signing::ModelCheck& check);

// Why it did not: one error, whose details are the files that differ.
Error signature_error(const signing::ModelCheck& check);

// Seconds since 1970 of "2026-03-01" or "2026-03-01T12:00:00Z"; kUsage for anything else.
Result<int64_t> parse_time(const std::string& text);

}  // namespace ferry::cli
