#include "cli/other_tools.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "batch/shell.h"
#include "cli/other_line.h"
#include "core/text.h"

namespace ferry::cli {
namespace {

using Words = std::vector<std::string>;

// Whether a text can be shown as it is, so that what is copied is what was meant.
bool is_showable(const std::string& word) {
  constexpr size_t kMost = 1000;
  std::string rest = word;
  std::erase_if(rest, [](char c) { return c == '\'' || c == '"' || c == '\\'; });
  return word.size() <= kMost && printable(rest) == rest;
}

}  // namespace

std::vector<std::string> meant_lines(const std::vector<std::string>& words, const LineSpec& spec,
                                     const std::function<bool(const Words&)>& accepts) {
  const std::optional<MeantLine> meant = translate_line(words, spec);
  if (!meant) return {};
  std::vector<std::string> lines;
  for (const Words& command : meant->commands) {
    if (!std::ranges::all_of(command, is_showable) || !accepts(command)) return {};
    lines.push_back(fmt::format("{}: ferry {}", lines.empty() ? "did you mean" : "and then",
                                batch::shell_line(command)));
  }
  if (!meant->left_out.empty() && std::ranges::all_of(meant->left_out, is_showable)) {
    lines.push_back(fmt::format("without an equivalent: {}", batch::shell_line(meant->left_out)));
  }
  for (const std::string& note : meant->notes) {
    if (is_showable(note)) lines.push_back(note);
  }
  return lines;
}

}  // namespace ferry::cli
