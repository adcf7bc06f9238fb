#include "cli/line_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "cli/option_values.h"

namespace ferry::cli {
namespace {

constexpr std::array<std::string_view, 3> kDirectoryValues = {"DIR", "BUNDLE", "OUT"};
constexpr std::array<std::string_view, 6> kFileValues = {"FILE",  "PATH",    "SRC",
                                                         "IMAGE", "PROGRAM", "PLAN"};

// Compares codes as numbers; "128+N" comes last.
bool comes_before(const ExitCode& a, const ExitCode& b) {
  const auto number = [](const ExitCode& code) { return parse_integer(code.code).value_or(1000); };
  return number(a) < number(b);
}

void append_verbs(std::vector<const VerbSpec*>& all, const std::deque<VerbSpec>& verbs) {
  for (const VerbSpec& verb : verbs) {
    all.push_back(&verb);
    append_verbs(all, verb.verbs);
  }
}

}  // namespace

Completes completes(const OptionSpec& option) {
  if (!option.words.empty()) return Completes::kWords;
  if (option.value == "VERB") return Completes::kVerbs;
  if (std::ranges::count(kDirectoryValues, option.value) > 0) return Completes::kDirectories;
  if (std::ranges::count(kFileValues, option.value) > 0) return Completes::kFiles;
  return Completes::kNothing;
}

std::string label(const OptionSpec& option) {
  if (option.is_positional()) return option.value;
  const std::string names = fmt::format("{}", fmt::join(option.names, ", "));
  return option.is_flag() ? names : names + " " + option.value;
}

std::vector<ExitCode> exit_codes_of(const LineSpec& line, const VerbSpec& verb) {
  std::vector<ExitCode> codes = verb.exit_codes;
  for (const ExitCode& common : line.exit_codes) {
    const auto same = [&](const ExitCode& code) { return code.code == common.code; };
    if (std::ranges::none_of(verb.exit_codes, same)) codes.push_back(common);
  }
  std::ranges::stable_sort(codes, comes_before);
  return codes;
}

const VerbSpec* find_verb(const LineSpec& line, const std::vector<std::string>& words) {
  const std::deque<VerbSpec>* verbs = &line.verbs;
  const VerbSpec* found = nullptr;
  for (const std::string& word : words) {
    const auto at = std::ranges::find(*verbs, word, &VerbSpec::own_name);
    if (at == verbs->end()) return nullptr;
    found = &*at;
    verbs = &at->verbs;
  }
  return found;
}

std::vector<const VerbSpec*> all_verbs(const LineSpec& line) {
  std::vector<const VerbSpec*> all;
  append_verbs(all, line.verbs);
  return all;
}

}  // namespace ferry::cli
