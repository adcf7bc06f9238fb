// WordCache keeps the ids of words that were encoded before. Its size is bounded: when it is full
// it is emptied, and a new word may replace another.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/hashing.h"

namespace ferry::text {

class WordCache {
 public:
  static constexpr size_t kMaxWord = 64;  // in bytes; longer words are not kept

  WordCache() : entries_(kSlots) {}

  // Appends the ids of `word` to `ids`. Returns false if the word is not cached.
  bool append(std::string_view word, std::vector<int64_t>& ids) const {
    const uint64_t hash = hash_text(word, hash_seed_);
    for (size_t probe = 0; probe < kProbes; ++probe) {
      const Entry& entry = entries_[(hash + probe) & (kSlots - 1)];
      if (entry.word_size == 0) return false;
      if (entry.hash != hash || entry.word_size != word.size()) continue;
      if (std::string_view(words_).substr(entry.word, entry.word_size) != word) continue;
      ids.insert(ids.end(), ids_.begin() + entry.ids, ids_.begin() + entry.ids + entry.id_count);
      return true;
    }
    return false;
  }

  // `word` must not be empty, not be cached, and have at most kMaxWord bytes.
  void put(std::string_view word, std::span<const uint32_t> ids) {
    if (words_.size() + word.size() > kMaxBytes || ids_.size() + ids.size() > kMaxBytes) clear();
    const uint64_t hash = hash_text(word, hash_seed_);
    size_t at = hash & (kSlots - 1);
    for (size_t probe = 0; probe < kProbes; ++probe) {
      const size_t next = (hash + probe) & (kSlots - 1);
      if (entries_[next].word_size != 0) continue;
      at = next;
      break;
    }
    entries_[at] = {hash, static_cast<uint32_t>(words_.size()), static_cast<uint32_t>(ids_.size()),
                    static_cast<uint32_t>(word.size()), static_cast<uint32_t>(ids.size())};
    words_ += word;
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }

 private:
  static constexpr size_t kSlots = 1 << 17, kProbes = 8, kMaxBytes = 4 << 20;
  struct Entry {
    uint64_t hash = 0;
    uint32_t word = 0, ids = 0;            // offsets
    uint32_t word_size = 0, id_count = 0;  // id_count is 0 if the slot is free
  };

  void clear() {
    entries_.assign(kSlots, {});
    words_.clear();
    ids_.clear();
  }

  uint64_t hash_seed_ = hash_seed();
  std::vector<Entry> entries_;
  std::string words_;
  std::vector<uint32_t> ids_;
};

}  // namespace ferry::text
