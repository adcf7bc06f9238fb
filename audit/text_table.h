// Tables and numbers as people read them. Private to audit/.
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
// A share of a whole in percent: "99.87"; "-" where the whole is nothing.
std::string percent_of(uint64_t part, uint64_t whole);
// "+1.0 %"; "new" where there was nothing.
std::string growth_of(int64_t delta, uint64_t old);
// An untrusted name for a terminal: escaped, and cut in the middle where it is long.
std::string shown(std::string_view name, size_t most = 60);

// Columns as wide as their cells. Columns named in `left` begin at the left, others end at the
// right; the first row is the head.
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
