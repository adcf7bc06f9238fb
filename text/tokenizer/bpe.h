// Bpe encodes one word at a time with byte-pair encoding, as the BPE model of tokenizer.json
// describes it. It merges the pair of lowest rank, the leftmost of equals, until no pair can be
// merged.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/tokenizer/hashing.h"
#include "text/tokenizer/token_model.h"

namespace ferry::text {

// WordCache keeps the ids of words that were encoded before. Its size is bounded: when it is full
// it is emptied, and a new word may replace another.
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

// MergeTable maps pairs of ids to merges. It uses open addressing, with 16 bytes for each entry.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank, id;  // `id` is that of the merged token
  };

  explicit MergeTable(size_t count);
  // A later merge of the same pair replaces the earlier one.
  void insert(uint32_t left, uint32_t right, Merge merge);
  // Returns nullptr if the pair cannot be merged.
  const Merge* find(uint32_t left, uint32_t right) const {
    for (size_t at = slot(left, right);; at = (at + 1) & mask_) {
      const Entry& entry = entries_[at];
      if (entry.left == left && entry.right == right) return &entry.merge;
      if (entry.left == kNone) return nullptr;
    }
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Entry {
    uint32_t left = kNone, right = kNone;
    Merge merge{};
  };
  size_t slot(uint32_t left, uint32_t right) const { return hash_pair(left, right, seed_) & mask_; }

  uint64_t seed_;
  size_t mask_;
  std::vector<Entry> entries_;
};

// Bpe is not thread-safe, because it caches words.
class Bpe final : public TokenModel {
 public:
  // With `byte_level`, words are bytes and the vocabulary spells them in the byte-level alphabet.
  // Otherwise words and vocabulary are text. `vocabulary` must outlive this object. kUnsupported
  // for unsupported options, by name.
  static Result<Bpe> make(const TokenizerDocument& document, const Vocabulary& vocabulary,
                          bool byte_level);

  // `text` may be long, without pre-tokenization. It is split where no merge can join the sides.
  Status encode(std::string_view text, std::vector<int64_t>& ids) override;

 private:
  struct Symbol {
    uint32_t id;
    int32_t previous, next;  // indices; -1 at the ends
    bool merged;             // whether the symbol is merged into the one before
  };
  struct Candidate {
    uint32_t rank, id;
    int32_t at;  // index of the left symbol
  };
  // The order of the heap: `a` comes after `b`.
  static bool later(const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.at > b.at;
  }

  explicit Bpe(size_t merges) : merges_(merges) {}
  Status read_options(const TokenizerDocument& document);
  Status read_merges(const TokenizerDocument& document);
  void find_bytes();
  bool marker_is_a_cut(const TokenizerDocument& document) const;
  std::optional<uint32_t> whole(std::string_view word);
  std::string_view spell(std::string_view word);
  void encode_word(std::string_view word, std::vector<int64_t>& ids);
  void encode_new(std::string_view word);
  void split_bytes(std::string_view word);
  void split_characters(std::string_view word);
  std::string_view with_affixes(std::string_view character, bool first, bool last);
  bool has_affixes() const { return !prefix_.empty() || !suffix_.empty(); }
  bool add_fallback(std::string_view character);
  void merge_short();
  void merge_long();
  void push_candidate(int32_t left, int32_t right);

  const Vocabulary* vocabulary_ = nullptr;
  bool byte_level_ = false, byte_fallback_ = false, fuse_unk_ = false, ignore_merges_ = false;
  bool cut_at_marker_ = false;
  std::optional<uint32_t> unk_;
  // of characters that do not begin a word, and of the character that ends it
  std::string prefix_, suffix_;
  // Tokens by byte: that of its byte-level character, and that of <0xNN>.
  std::vector<std::optional<uint32_t>> byte_tokens_, fallback_tokens_;
  MergeTable merges_;
  WordCache cache_;
  // Memory that is reused for every word.
  std::string spelled_, affixed_;
  std::vector<uint32_t> symbols_;
  std::vector<MergeTable::Merge> pairs_;
  std::vector<Symbol> links_;
  std::vector<Candidate> heap_;
};

}  // namespace ferry::text
