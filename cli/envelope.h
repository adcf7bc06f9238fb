// How a result or an error leaves the program: lines on stderr, an exit code, and with --json a
// document, which is one envelope around what each verb has to say. docs/command_line.md and
// docs/schemas describe them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/json_writer.h"
#include "core/result.h"

namespace ferry::cli {

inline constexpr int kSchema = 1;

// The document in parts, in their order, the last of which ends with a newline. `verb` is empty
// where the line names none, `error` nullptr where there is none, `result` the text of an object or
// empty.
void write_envelope(std::string_view verb, int exit, const Error* error, std::string_view result,
                    const std::function<void(std::string_view)>& write);

// The whole document of an error.
std::string error_document(std::string_view verb, const Error& error);

// The error as the command line says it: libraries name a field ("top_k must be ..."), which is the
// option --top-k here.
Error with_option(Error error);

// The exit code that belongs to the error's code; for kInterrupted 128 and the number of the
// signal.
int exit_code(const Error& error);
// "bad_input"
std::string_view code_name(ErrorCode code);

// "ferry: error: message" and one indented line per detail, to stderr.
void print_error(const Error& error, bool with_details);

// An object: code, message, details, and of the place what is known.
void write_error(JsonWriter& json, const Error& error);

// Where a message says that something is wrong: messages are "FILE: what is wrong (tensor 'x',
// offset N)" (core/result.h).
struct Place {
  std::string file;                // empty unless it is a path that exists or cannot be opened
  std::string tensor;              // as the message shows it, without its quotes
  std::optional<uint64_t> offset;  // in the file
};
Place place_of(const Error& error);

// The members `tensor` and `offset` of an open object, where they are known.
void write_position(JsonWriter& json, const Place& place);

}  // namespace ferry::cli
