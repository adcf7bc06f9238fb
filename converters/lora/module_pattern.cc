#define PCRE2_CODE_UNIT_WIDTH 8
#include "converters/lora/module_pattern.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <array>

#include "core/text.h"

namespace ferry::converters {
namespace {

constexpr size_t kMaxPatternBytes = 1024;
constexpr uint32_t kMaxNesting = 32;
constexpr uint32_t kMatchLimit = 100'000;

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// Returns why Python may read the pattern as something else than PCRE2; empty if it does not.
// Inside of brackets no bracket may stand, because "[[:alpha:]]" is a class for PCRE2 alone.
std::string_view difference(std::string_view pattern) {
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i], next = i + 1 < pattern.size() ? pattern[i + 1] : '\0';
    if (c < ' ' || c > '~') return "a character that is not printable ASCII";
    if (c == '\\') {
      if (is_letter_or_digit(next) &&
          std::string_view("dDwWsS").find(next) == std::string_view::npos) {
        return "an escape other than \\d, \\w, \\s";
      }
      ++i;
    } else if (in_class) {
      if (c == '[') return "a bracket inside of brackets";
      in_class = c != ']';
    } else if (c == '[') {
      in_class = true;
      if (next == '^') ++i;
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') return "brackets that begin with ]";
    } else if (c == '(' && (next == '?' || next == '*')) {
      if (pattern.substr(i, 3) != "(?:") return "a group that begins with (? or (*";
      i += 2;
    } else if (c == '{' && next == ',') {
      return "{, without a number";
    }
  }
  return {};
}

}  // namespace

Result<ModulePattern> ModulePattern::compile(std::string_view pattern, const std::string& where) {
  const std::string shown = fmt::format("{}: {}", where, quoted(pattern, 60));
  if (pattern.size() > kMaxPatternBytes) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: is longer than {} bytes", shown, kMaxPatternBytes));
  }
  if (const std::string_view other = difference(pattern); !other.empty()) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: has {}", shown, other));
  }
  const std::string whole = fmt::format("(?:.*\\.)?(?:{})$", pattern);
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> limits(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  pcre2_set_parens_nest_limit(limits.get(), kMaxNesting);
  int error = 0;
  size_t offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(whole.data()), whole.size(),
                                   PCRE2_ANCHORED | PCRE2_NEVER_UTF | PCRE2_NEVER_BACKSLASH_C,
                                   &error, &offset, limits.get());
  if (code == nullptr) return bad_input(fmt::format("{}: is no regular expression", shown));
  return ModulePattern(
      std::shared_ptr<const void>(
          code,
          [](const void* p) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(p))); }),
      shown);
}

// The matcher without backtracking takes time that is linear in the length of the name.
Result<bool> ModulePattern::ends(std::string_view module) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> limits(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  pcre2_set_match_limit(limits.get(), kMatchLimit);
  std::array<int, 4096> workspace;
  const int count =
      pcre2_dfa_match(code, reinterpret_cast<PCRE2_SPTR>(module.data()), module.size(), 0, 0,
                      data.get(), limits.get(), workspace.data(), workspace.size());
  if (count >= 0) return true;
  if (count == PCRE2_ERROR_NOMATCH) return false;
  return fail(ErrorCode::kUnsupported, fmt::format("{}: takes too much work to match", where_));
}

}  // namespace ferry::converters
