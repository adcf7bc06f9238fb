#include "core/json_events.h"

#include <fmt/format.h>

#include "core/json.h"

namespace ferry {
namespace {

constexpr std::string_view kWhiteSpace = " \t\r\n";

// The library's message quotes the input; only its reason is kept:
// "... - invalid literal; last read: ..." becomes "invalid literal".
std::string reason_of(const nlohmann::json::exception& error) {
  const std::string_view what = error.what();
  const size_t dash = what.find(" - ");
  if (dash == std::string_view::npos) return error.id == 406 ? "number out of range" : "malformed";
  const std::string_view reason = what.substr(dash + 3);
  return std::string(reason.substr(0, reason.find(';')));
}

}  // namespace

bool JsonHandler::start_object(size_t) {
  if (++depth_ > kMaxJsonDepth) return refuse(fmt::format("nested deeper than {}", kMaxJsonDepth));
  return begin_object();
}

bool JsonHandler::end_object() {
  --depth_;
  return close_object();
}

bool JsonHandler::start_array(size_t) {
  if (++depth_ > kMaxJsonDepth) return refuse(fmt::format("nested deeper than {}", kMaxJsonDepth));
  return begin_array();
}

bool JsonHandler::end_array() {
  --depth_;
  return close_array();
}

bool JsonHandler::binary(nlohmann::json::binary_t&) { return refuse("binary value"); }

bool JsonHandler::parse_error(size_t position, const std::string&,
                              const nlohmann::json::exception& error) {
  // The position counts characters read, the offending one included.
  const uint64_t offset = base_offset_ + (position == 0 ? 0 : position - 1);
  return refuse(fmt::format("not valid JSON: {} (offset {})", reason_of(error), offset));
}

bool JsonHandler::refuse(std::string message) {
  if (error_.empty()) error_ = std::move(message);
  return false;
}

Status parse_json_events(std::string_view text, const std::string& name, JsonHandler& handler,
                         uint64_t base_offset) {
  handler.base_offset_ = base_offset;
  // The library skips a byte order mark and takes a NUL for the end of the text. JSON allows
  // neither, and a NUL is nowhere legal in it.
  const size_t nul = text.find('\0');
  if (nul != std::string_view::npos) {
    return bad_input(
        fmt::format("{}: not valid JSON: NUL byte (offset {})", name, base_offset + nul));
  }
  if (text.substr(0, 3) == "\xef\xbb\xbf") {
    return bad_input(
        fmt::format("{}: not valid JSON: byte order mark (offset {})", name, base_offset));
  }
  // The library would keep a copy of white space, of which a padded header may have 100 MB.
  const size_t last = text.find_last_not_of(kWhiteSpace);
  text = text.substr(0, last == std::string_view::npos ? 0 : last + 1);
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &handler)) return {};
  return bad_input(name + ": " + handler.error_);
}

}  // namespace ferry
