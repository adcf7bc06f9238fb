// Prints errors to stderr, maps them to exit codes, and writes the JSON document of --json, which
// is an envelope around the result of a verb. docs/command_line.md and docs/schemas describe them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/json_writer.h"
#include "core/result.h"

namespace ferry::cli {

// Passes the document to `write` in parts, in order, with a newline at the end. `verb` is empty if
// the line names none. `error` may be nullptr. `result` is the text of an object, or empty.
void write_envelope(std::string_view verb, int exit, const Error* error, std::string_view result,
                    const std::function<void(std::string_view)>& write);

// Returns the whole document of an error without a result.
std::string error_document(std::string_view verb, const Error& error);

// Replaces the field that a library's message names by the option: "top_k must be ..." becomes
// "--top-k must be ...". If the message does not name the field, its details do.
Error with_option(Error error);

// Returns the exit code for the error's code; for kInterrupted 128 plus the number of the signal.
int exit_code(const Error& error);
// Returns the code's name in JSON, such as "bad_input".
std::string_view code_name(ErrorCode code);

// stderr has this many details of an error; the others are left to --json.
inline constexpr size_t kMostDetails = 20;
// Prints "ferry: error: MESSAGE" and one indented line per detail to stderr.
void print_error(const Error& error, bool with_details);

// Writes an object with code, message, details, and what is known of place_of().
void write_error(JsonWriter& json, const Error& error);

// The place that an error message names. Messages have the form "FILE: what is wrong (tensor 'x',
// offset N)" (core/result.h).
struct Place {
  std::string file;                // a path that exists or cannot be opened; else empty
  std::string tensor;              // escaped like in the message, without the quotes
  std::optional<uint64_t> offset;  // bytes from the start of the file
};
Place place_of(const Error& error);

// Writes the members `tensor` and `offset` of the open object, if they are known.
void write_position(JsonWriter& json, const Place& place);

}  // namespace ferry::cli
