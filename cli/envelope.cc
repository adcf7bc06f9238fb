#include "cli/envelope.h"

#include <algorithm>
#include <array>

#include "cli/error_report.h"
#include "core/json_writer.h"
#include "core/version.h"

namespace ferry::cli {
namespace {

constexpr std::array<std::string_view, 7> kOwnMembers = {"schema", "ferry", "verb",  "ok",
                                                         "exit",   "error", "result"};

// Verbs that are older than the envelope: the members of their results stand beside `result` too,
// where scripts look for them. Schema 2 will end that.
constexpr std::array<std::string_view, 7> kOlderVerbs = {"inspect", "convert", "run",  "preprocess",
                                                         "execute", "verify",  "check"};

// The length of the string, object, array or word that `text` begins with.
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

// `object` is JsonWriter's: nothing stands between its tokens.
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
  json.begin_object().member("schema", kSchema).member("ferry", version());
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
  text.pop_back();  // the newline
  return text;
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

}  // namespace ferry::cli
