// How an error leaves the program: lines on stderr, an exit code, and with --json one document on
// stdout. docs/command_line.md describes all three.
#pragma once

#include <string>

#include "core/json_writer.h"
#include "core/result.h"

namespace ferry::cli {

// That of the error's code; for kInterrupted 128 and the number of the signal.
int exit_code(const Error& error);

// "ferry: error: message" and one indented line per detail, to stderr.
void print_error(const Error& error, bool with_details);

// Members of an object that is open: "ok": false, "exit", and "error" with code, message, details.
void write_error(JsonWriter& json, const Error& error);
// A document of nothing else.
std::string error_document(const Error& error);

}  // namespace ferry::cli
