// TokenTrie finds the longest of a set of texts at a position. The sorted texts are narrowed byte
// by byte, which needs no memory beyond them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ferry::text {

class TokenTrie {
 public:
  // The texts are not empty, and each has a number. The first of equal texts counts.
  explicit TokenTrie(std::vector<std::pair<std::string, uint32_t>> texts = {});

  struct Match {
    size_t begin, end;
    uint32_t number;
  };
  // Returns the first position at or after `from` where a text stands, and the longest text there.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  std::optional<Match> longest_at(std::string_view text, size_t at) const;

  std::vector<std::pair<std::string, uint32_t>> texts_;  // sorted
  std::array<uint32_t, 257> first_{};  // the index of the first text, by first byte
};

}  // namespace ferry::text
