#include "proof/token_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <string_view>

#include "core/file.h"
#include "core/text.h"

namespace ferry::proof {
namespace {

constexpr uint64_t kMaxPromptBytes = 64 << 20;

// Removes a pair of brackets around a line.
std::string_view without_brackets(std::string_view line) {
  constexpr std::string_view kBlank = " \t\r";
  const size_t first = line.find_first_not_of(kBlank), last = line.find_last_not_of(kBlank);
  if (first == line.npos || line[first] != '[' || line[last] != ']') return line;
  return line.substr(first + 1, last - first - 1);
}

Result<std::vector<int64_t>> parse_line(std::string_view line, const std::string& where) {
  std::vector<int64_t> ids;
  line = without_brackets(line);
  constexpr std::string_view kBetween = ", \t\r";
  for (size_t at = line.find_first_not_of(kBetween); at != std::string_view::npos;
       at = line.find_first_not_of(kBetween, at)) {
    int64_t id = 0;
    const auto [end, error] = std::from_chars(line.data() + at, line.data() + line.size(), id);
    const auto next = static_cast<size_t>(end - line.data());
    const bool whole = next == line.size() || kBetween.find(line[next]) != std::string_view::npos;
    if (error != std::errc() || !whole) {
      return bad_input(fmt::format("{}: expected token ids such as 1,2,3", where));
    }
    ids.push_back(id);
    at = next;
  }
  return ids;
}

}  // namespace

Result<Prompts> read_prompts(const std::string& path) {
  const InputFile file = FERRY_TRY(InputFile::open(path));
  if (file.size() > kMaxPromptBytes) return bad_input(fmt::format("{}: too large", path));
  std::string text(file.size(), '\0');
  FERRY_RETURN_IF_ERROR(file.read_at(0, std::as_writable_bytes(std::span(text))));
  Prompts prompts;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string where = fmt::format("{}: line {}", printable(path), ++number);
    std::vector<int64_t> ids =
        FERRY_TRY(parse_line(std::string_view(text).substr(at, end - at), where));
    if (!ids.empty()) prompts.push_back(std::move(ids));
    at = end + 1;
  }
  if (prompts.empty()) return bad_input(fmt::format("{}: there is no prompt", printable(path)));
  return prompts;
}

}  // namespace ferry::proof
