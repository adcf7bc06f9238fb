// Formats tables and numbers for people. Private to audit/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ferry::audit {

// "1,192,268,160"
std::string grouped(uint64_t number);
// "+12,345", "-5", "0"
std::string signed_grouped(int64_t number);
// "+12.35 MB"
std::string signed_human(int64_t bytes);
// Returns `part` in percent of `whole`, such as "99.87"; "-" if `whole` is 0.
std::string percent_of(uint64_t part, uint64_t whole);
// Returns the growth in percent, such as "+1.0 %"; "new" if `old` is 0.
std::string growth_of(int64_t delta, uint64_t old);
// Escapes an untrusted name for a terminal, and replaces its middle by "..." if it is longer than
// `most` bytes.
std::string shown(std::string_view name, size_t most = 60);

// Columns are as wide as their widest cell. Columns whose indices are in `left` are aligned left,
// others right.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> head, std::vector<size_t> left = {0});
  void add(std::vector<std::string> cells);
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::vector<size_t> left_;
};

}  // namespace ferry::audit
