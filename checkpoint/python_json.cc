#include "checkpoint/python_json.h"

#include <fmt/format.h>

#include <algorithm>

namespace ferry::checkpoint {
namespace {

constexpr std::string_view kWords[] = {"-Infinity", "Infinity", "NaN"};
// Characters between which a value stands.
constexpr std::string_view kBefore = " \n\t\r,:[", kAfter = " \n\t\r,]}";

// Returns the position behind the string that begins at `at` with a quote.
size_t string_end(std::string_view text, size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

// Returns the word that is a value at `at`; empty where there is none.
std::string_view word_at(std::string_view text, size_t at) {
  if (at == 0 || kBefore.find(text[at - 1]) == kBefore.npos) return {};
  for (const std::string_view word : kWords) {
    const size_t end = at + word.size();
    if (!text.substr(at).starts_with(word)) continue;
    if (end < text.size() && kAfter.find(text[end]) != kAfter.npos) return word;
  }
  return {};
}

}  // namespace

std::optional<std::string> without_bare_floats(std::string_view text) {
  std::string out;
  size_t copied = 0;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '"') {
      at = string_end(text, at);
      continue;
    }
    const std::string_view word = word_at(text, at);
    if (word.empty()) {
      ++at;
      continue;
    }
    out += text.substr(copied, at - copied);
    out += fmt::format(R"({{"__float__": "{}"}})", word);
    at += word.size();
    copied = at;
  }
  if (copied == 0) return std::nullopt;
  return out.append(text.substr(copied));
}

}  // namespace ferry::checkpoint
