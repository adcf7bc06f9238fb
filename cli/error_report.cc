#include "cli/error_report.h"

#include <fmt/format.h>

#include <cstdio>

#include "core/interrupt.h"

namespace ferry::cli {
namespace {

const char* code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kBadInput:
      return "bad_input";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kInternal:
      return "internal";
    case ErrorCode::kInterrupted:
      return "interrupted";
  }
  return "internal";
}

}  // namespace

int exit_code(const Error& error) {
  const int code = static_cast<int>(error.code);
  return error.code == ErrorCode::kInterrupted ? code + interrupt_signal() : code;
}

void print_error(const Error& error, bool with_details) {
  std::string text = fmt::format("ferry: error: {}\n", error.message);
  if (with_details) {
    for (const std::string& detail : error.details) text += fmt::format("  {}\n", detail);
  }
  std::fwrite(text.data(), 1, text.size(), stderr);
}

void write_error(JsonWriter& json, const Error& error) {
  json.member("ok", false).member("exit", exit_code(error));
  json.key("error").begin_object();
  json.member("code", code_name(error.code)).member("message", error.message);
  json.key("details").begin_array();
  for (const std::string& detail : error.details) json.value(detail);
  json.end_array().end_object();
}

std::string error_document(const Error& error) {
  JsonWriter json;
  json.begin_object();
  write_error(json, error);
  json.end_object();
  return json.take();
}

}  // namespace ferry::cli
