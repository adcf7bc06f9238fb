// How an error leaves the program: lines on stderr, an exit code, and with --json an object in the
// envelope. docs/command_line.md describes all three.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/json_writer.h"
#include "core/result.h"

namespace ferry::cli {

// That of the error's code; for kInterrupted 128 and the number of the signal.
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
