// Charsmap is the character map of a SentencePiece model (`precompiled_charsmap`), which the
// normalizer Precompiled applies. Layout: u32 size of the trie in bytes, the trie as a double array
// of u32 units (Darts-clone), then the replacement texts, each ended by a zero byte; all
// little-endian. A leaf of the trie holds the offset of the replacement of the characters on the
// path to it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::text {

class Charsmap {
 public:
  // kBadInput for bytes that are no such map. `where` begins error messages.
  static Result<Charsmap> parse(std::string_view bytes, const std::string& where);

  // Replaces the characters that the map contains. Like the reference it looks up grapheme clusters
  // of fewer than 6 bytes first, then single characters, and takes the shortest entry at the
  // beginning of either. kBadInput if an offset lies outside of the map, or if the text would
  // become larger than `most` bytes.
  Status apply(std::string& text, size_t most) const;

  // The longest entry at the beginning of a text and the text in its place, as SentencePiece looks
  // it up; size 0 where there is none. kBadInput as for apply().
  struct Longest {
    std::string_view text;
    size_t size = 0;
  };
  Result<Longest> longest(std::string_view text) const;

 private:
  struct Found {
    std::string_view text;
    bool known = false, damaged = false;
  };
  Found find(std::string_view part) const;
  Found text_at(uint32_t offset) const;
  Status map_cluster(std::string_view cluster, std::string& out) const;

  std::string where_;
  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace ferry::text
