#include "cli/envelope.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "core/interrupt.h"
#include "core/json_writer.h"
#include "core/version.h"

namespace ferry::cli {
namespace {

constexpr std::array<std::string_view, 7> kOwnMembers = {"schema", "ferry", "verb",  "ok",
                                                         "exit",   "error", "result"};

// Verbs that are older than the envelope. Their members are written beside `result` too, because
// scripts look for them there. The next schema of such a verb ends that.
constexpr std::array<std::string_view, 6> kOlderVerbs = {"inspect", "convert", "preprocess",
                                                         "execute", "verify",  "check"};

// Returns the version of the documents of a verb.
int schema_of(std::string_view verb) { return verb == "run" ? 2 : 1; }

// Returns the length of the value, or of the member with its name, with which `text` begins.
size_t value_length(std::string_view text) {
  size_t depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      i += c == '\\' ? 1 : 0;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) return i;
      --depth;
    } else if (c == ',' && depth == 0) {
      return i;
    }
  }
  return text.size();
}

// Writes the members of `object`, which comes from JsonWriter and has no blanks between its tokens.
void repeat_members(std::string_view object, const std::function<void(std::string_view)>& write) {
  object.remove_prefix(1);
  while (object.starts_with('"')) {
    const size_t length = value_length(object);
    const std::string_view member = object.substr(0, length);
    const std::string_view name = member.substr(1, member.find('"', 1) - 1);
    if (std::ranges::count(kOwnMembers, name) == 0) {
      write(",");
      write(member);
    }
    object.remove_prefix(std::min(length + 1, object.size()));
  }
}

std::string head(std::string_view verb, int exit, const Error* error) {
  JsonWriter json;
  json.begin_object().member("schema", schema_of(verb)).member("ferry", version());
  json.key("verb");
  verb.empty() ? json.null() : json.value(verb);
  json.member("ok", exit == 0).member("exit", exit);
  json.key("error");
  if (error == nullptr) {
    json.null();
  } else {
    write_error(json, *error);
  }
  std::string text = json.key("result").take();
  text.pop_back();  // removes the newline of JsonWriter
  return text;
}

constexpr std::string_view kTensor = "tensor '", kOffset = "offset ";

bool is_there(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0;
}

// Returns the longest beginning of the message that ends before a colon and is an existing path.
std::string file_of(const Error& error) {
  if (error.code == ErrorCode::kUsage || error.code == ErrorCode::kInternal) return {};
  const std::string& message = error.message;
  for (size_t at = message.rfind(": "); at != message.npos && at > 0;
       at = message.rfind(": ", at - 1)) {
    if (std::string path = message.substr(0, at); is_there(path)) return path;
  }
  const size_t absent =
      error.code == ErrorCode::kIo ? message.rfind(": cannot open: ") : message.npos;
  return absent == message.npos ? std::string() : message.substr(0, absent);
}

// Returns the text of the parentheses at the end of a message, with the closing one; empty if none.
std::string_view parenthesis_of(std::string_view message) {
  if (!message.ends_with(')')) return {};
  const size_t open = message.rfind(" (");
  return open == message.npos ? std::string_view() : message.substr(open + 2);
}

// Returns the number of "offset N)" at the end of a text, if "offset" is a word of its own.
std::optional<uint64_t> offset_of(std::string_view text) {
  const size_t at = text.rfind(kOffset);
  if (at == text.npos || (at > 0 && text[at - 1] != ' ')) return std::nullopt;
  uint64_t offset = 0;
  const char* begin = text.data() + at + kOffset.size();
  const auto [end, failed] = std::from_chars(begin, text.data() + text.size(), offset);
  return failed == std::errc() && *end == ')' ? std::optional(offset) : std::nullopt;
}

std::string tensor_of(std::string_view text) {
  if (!text.starts_with(kTensor)) return {};
  text.remove_prefix(kTensor.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '\'') {
      return std::string(text.substr(0, i));
    }
  }
  return {};
}

// Like parenthesis_of(), but finds the start by "(tensor '", because names may have parentheses.
std::string_view tensor_words(std::string_view message) {
  const size_t at = message.rfind(std::string("(").append(kTensor));
  return at == message.npos || !message.ends_with(')') ? parenthesis_of(message)
                                                       : message.substr(at + 1);
}

}  // namespace

void write_envelope(std::string_view verb, int exit, const Error* error, std::string_view result,
                    const std::function<void(std::string_view)>& write) {
  while (result.ends_with('\n')) result.remove_suffix(1);
  write(head(verb, exit, error));
  write(result.empty() ? std::string_view("null") : result);
  if (std::ranges::count(kOlderVerbs, verb) > 0 && !result.empty()) repeat_members(result, write);
  write("}\n");
}

std::string error_document(std::string_view verb, const Error& error) {
  std::string text;
  write_envelope(verb, exit_code(error), &error, {}, [&](std::string_view part) { text += part; });
  return text;
}

std::string_view code_name(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return "usage";
    case ErrorCode::kBadInput:
      return "bad_input";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kExists:
      return "exists";
    case ErrorCode::kInternal:
      return "internal";
    case ErrorCode::kInterrupted:
      return "interrupted";
  }
  return "internal";
}

Error with_option(Error error) {
  if (error.field.empty()) return error;
  std::string option = "--" + error.field;
  std::ranges::replace(option, '_', '-');
  const auto name_option = [&](std::string& text) {
    const bool leads = text.starts_with(error.field + ":") || text.starts_with(error.field + " ");
    // A path at the start of the text may contain the same word, so the last occurrence counts.
    const size_t at = leads ? 0 : text.rfind(error.field);
    if (at == std::string::npos) return false;
    text.replace(at, error.field.size(), option);
    return true;
  };
  if (name_option(error.message)) return error;
  for (std::string& detail : error.details) name_option(detail);
  return error;
}

int exit_code(const Error& error) {
  const int code = static_cast<int>(error.code);
  return error.code == ErrorCode::kInterrupted ? code + interrupt_signal() : code;
}

void print_error(const Error& error, bool with_details) {
  std::string text = fmt::format("ferry: error: {}\n", error.message);
  if (with_details) {
    const size_t shown = std::min(error.details.size(), kMostDetails);
    for (size_t i = 0; i < shown; ++i) text += fmt::format("  {}\n", error.details[i]);
    const size_t left = error.details.size() - shown;
    if (left > 0) text += fmt::format("  and {} more, which --json lists\n", left);
  }
  std::fwrite(text.data(), 1, text.size(), stderr);
}

Place place_of(const Error& error) {
  const std::string_view words = tensor_words(error.message);
  return {file_of(error), tensor_of(words), offset_of(words)};
}

void write_position(JsonWriter& json, const Place& place) {
  if (!place.tensor.empty()) json.member("tensor", place.tensor);
  if (place.offset) json.member("offset", *place.offset);
}

void write_error(JsonWriter& json, const Error& error) {
  json.begin_object();
  json.member("code", code_name(error.code)).member("message", error.message);
  json.key("details").begin_array();
  for (const std::string& detail : error.details) json.value(detail);
  json.end_array();
  const Place place = place_of(error);
  if (!place.file.empty()) json.member("file", place.file);
  write_position(json, place);
  json.end_object();
}

}  // namespace ferry::cli
