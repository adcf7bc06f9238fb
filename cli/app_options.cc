#include "cli/app_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/suggestion.h"
#include "core/text.h"

namespace ferry::cli {

std::string names_of(const std::string& name) { return name.substr(0, name.find(' ')); }

OptionSpec described(const std::string& name, const std::string& value, const std::string& help) {
  OptionSpec spec = {.value = value, .help = help};
  for (std::string_view rest = name; !rest.empty();) {
    const size_t end = std::min(rest.find_first_of(", "), rest.size());
    if (rest[0] == '-') {
      spec.names.emplace_back(rest.substr(0, end));
    } else {
      spec.value = rest.substr(0, end);
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return spec;
}

CLI::Option* add_size(CLI::App* app, const std::string& name, std::optional<int64_t>& value) {
  const auto parse = [](std::string_view text) -> std::optional<int64_t> {
    if (const std::optional<uint64_t> bytes = parse_size(text)) {
      return static_cast<int64_t>(*bytes);
    }
    return parse_integer(text);  // a number out of range, which the verb refuses
  };
  return add_number<int64_t>(app, name, value, parse, kSizeSyntax.data());
}

std::function<std::string(const std::string&)> one_of(const std::vector<std::string>& words) {
  return [words](const std::string& word) {
    if (std::ranges::count(words, word) > 0) return std::string();
    return fmt::format("{} not in {{{}}}{}", word, fmt::join(words, ","), suggestion(word, words));
  };
}

void refuse_empty(CLI::Option* option, std::string_view value) {
  constexpr std::string_view kNeverEmpty[] = {"FILE",   "DIR", "PATH", "SRC",
                                              "BUNDLE", "OUT", "TIME"};
  if (std::ranges::count(kNeverEmpty, value) == 0) return;
  option->check([value = std::string(value)](const std::string& word) {
    return word.empty() ? fmt::format("{} is empty", value) : std::string();
  });
}

}  // namespace ferry::cli
