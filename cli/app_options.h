// Adds options to an App of CLI11 in the way of this program: numbers are checked, words are
// refused with a suggestion, and an empty word is not taken for an absent one.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/help_text.h"
#include "cli/option_values.h"

namespace ferry::cli {

// CLI11 takes only "-o,--out" of "-o,--out DIR".
std::string names_of(const std::string& name);

// Returns what the help says of an option. `name` may end with the word for its value, which is
// `value` otherwise.
OptionSpec described(const std::string& name, const std::string& value, const std::string& help);

// Numbers are not read by CLI11, because it accepts octal numbers and clamps numbers out of range.
template <class T, class Value>
CLI::Option* add_number(CLI::App* app, const std::string& name, Value& value,
                        std::optional<T> (*parse)(std::string_view), const char* expected) {
  const std::string names = names_of(name);
  const auto store = [names, &value, parse, expected](const CLI::results_t& words) {
    const std::optional<T> number = parse(words.back());
    if (!number) {
      throw CLI::ValidationError(names, fmt::format("{} is not {}", words.back(), expected));
    }
    value = *number;
    return true;
  };
  return app->add_option(names, store)->expected(1);
}

template <class Value>
CLI::Option* add_integer(CLI::App* app, const std::string& name, Value& value) {
  return add_number<int64_t>(app, name, value, parse_integer, "a whole number below 2^63");
}

template <class Value>
CLI::Option* add_real(CLI::App* app, const std::string& name, Value& value) {
  return add_number<double>(app, name, value, parse_real, "a finite number");
}

// Also takes sizes with a unit, such as 2GiB.
CLI::Option* add_size(CLI::App* app, const std::string& name, std::optional<int64_t>& value);

// Returns a check that refuses all but these words.
std::function<std::string(const std::string&)> one_of(const std::vector<std::string>& words);

// Refuses empty values that cannot be meant. A script whose variable is not set gives an empty
// word. If that counted as an absent option, it would turn off what the script asks for, such as
// the check of a signature.
void refuse_empty(CLI::Option* option, std::string_view value);

}  // namespace ferry::cli
