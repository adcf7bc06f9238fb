#include "text/tokenizer/prefix_trie.h"

#include <algorithm>
#include <string>

namespace ferry::text {
namespace {

constexpr size_t kMaxNodes = 1 << 25;

// The texts [low, high) share their first `depth` bytes, so they belong to one node.
struct Span {
  uint32_t low, high;
};

unsigned char byte_at(const PrefixTrie::Entry& entry, size_t depth) {
  return static_cast<unsigned char>(entry.first[depth]);
}

}  // namespace

Result<PrefixTrie> PrefixTrie::make(std::vector<Entry> entries, const std::string& name) {
  std::erase_if(entries, [](const Entry& entry) { return entry.first.empty(); });
  std::ranges::sort(entries);
  PrefixTrie trie;
  trie.first_child_.clear();
  std::vector<Span> level = {{0, static_cast<uint32_t>(entries.size())}}, next;
  for (size_t depth = 0; !level.empty(); ++depth) {
    next.clear();
    for (const Span& span : level) {  // the nodes of this depth, in order
      trie.first_child_.push_back(static_cast<uint32_t>(trie.labels_.size()));
      uint32_t low = span.low;
      // this text ends at the node
      while (low < span.high && entries[low].first.size() == depth) ++low;
      while (low < span.high) {
        const unsigned char byte = byte_at(entries[low], depth);
        uint32_t high = low + 1;
        while (high < span.high && byte_at(entries[high], depth) == byte) ++high;
        const bool ends = entries[low].first.size() == depth + 1;
        trie.labels_.push_back(byte);
        trie.values_.push_back(ends ? entries[low].second : kNone);
        next.push_back({low, high});
        low = high;
      }
      if (trie.labels_.size() > kMaxNodes) return bad_input(name + ": too many different texts");
    }
    std::swap(level, next);
  }
  trie.first_child_.push_back(static_cast<uint32_t>(trie.labels_.size()));
  return trie;
}

}  // namespace ferry::text
