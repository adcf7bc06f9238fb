#include "audit/text_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "core/utf8.h"

namespace ferry::audit {
namespace {

uint64_t magnitude(int64_t number) {
  return number < 0 ? uint64_t{0} - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
}

// Returns the number of code points, which approximates the width on a terminal.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }));
}

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80U; }

}  // namespace

std::string grouped(uint64_t number) {
  std::string digits = std::to_string(number);
  for (size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, 1, ',');
  }
  return digits;
}

std::string signed_grouped(int64_t number) {
  const char* const sign = number > 0 ? "+" : number < 0 ? "-" : "";
  return sign + grouped(magnitude(number));
}

std::string signed_human(int64_t bytes) {
  return fmt::format("{}{}", bytes < 0 ? "-" : "+", human_bytes(magnitude(bytes)));
}

std::string percent_of(uint64_t part, uint64_t whole) {
  if (whole == 0) return "-";
  return fmt::format("{:.2f}", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string growth_of(int64_t delta, uint64_t old) {
  if (old == 0) return delta == 0 ? "0 %" : "new";
  return fmt::format("{:+.1f} %", 100.0 * static_cast<double>(delta) / static_cast<double>(old));
}

std::string shown(std::string_view name, size_t most) {
  std::string text = printable(name);
  if (text.size() <= most) return text;
  size_t head = most / 2, tail = text.size() - (most - head - 3);
  while (head > 0 && !begins_character(text[head])) --head;
  while (tail < text.size() && !begins_character(text[tail])) ++tail;
  return text.substr(0, head) + "..." + text.substr(tail);
}

TextTable::TextTable(std::vector<std::string> head, std::vector<size_t> left)
    : left_(std::move(left)) {
  rows_.push_back(std::move(head));
}

void TextTable::add(std::vector<std::string> cells) {
  cells.resize(rows_.front().size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::text() const {
  std::vector<size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  }
  std::string out;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - width_of(row[i]), ' ');
      const bool left = std::ranges::find(left_, i) != left_.end();
      line += (i > 0 ? "  " : "") + (left ? row[i] + space : space + row[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
  }
  return out;
}

}  // namespace ferry::audit
