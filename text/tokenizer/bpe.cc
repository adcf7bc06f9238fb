#include "text/tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/text.h"
#include "core/utf8.h"
#include "text/tokenizer/byte_level.h"

namespace ferry::text {
namespace {

// Up to this many symbols a linear scan for the lowest rank is faster than a heap.
constexpr size_t kShortWord = 32;
// SentencePiece writes U+2581 for a blank before a word.
constexpr std::string_view kMarker = "\xE2\x96\x81";

}  // namespace

MergeTable::MergeTable(size_t count)
    : seed_(hash_seed()),
      mask_(std::bit_ceil(std::max<size_t>(count * 2, 16)) - 1),
      entries_(mask_ + 1) {}

void MergeTable::insert(uint32_t left, uint32_t right, Merge merge) {
  size_t at = slot(left, right);
  while (entries_[at].left != kNone && (entries_[at].left != left || entries_[at].right != right)) {
    at = (at + 1) & mask_;
  }
  entries_[at] = {left, right, merge};
}

// -- reading

Result<Bpe> Bpe::make(const TokenizerDocument& document, const Vocabulary& vocabulary,
                      bool byte_level) {
  Bpe bpe(document.merges.size());
  bpe.vocabulary_ = &vocabulary;
  bpe.byte_level_ = byte_level;
  FERRY_RETURN_IF_ERROR(bpe.read_options(document));
  FERRY_RETURN_IF_ERROR(bpe.read_merges(document));
  bpe.find_bytes();
  bpe.cut_at_marker_ = bpe.marker_is_a_cut(document);
  return bpe;
}

Status Bpe::read_options(const TokenizerDocument& document) {
  StepFields fields =
      FERRY_TRY(StepFields::of(document.root.at("model"), document.name + ": model"));
  fields.find("type");
  if (!document.has_vocab || !document.has_merges) {
    return fields.bad("'vocab' or 'merges' is missing");
  }
  fields.find("vocab");
  fields.find("merges");
  prefix_ = FERRY_TRY(fields.optional_text("continuing_subword_prefix")).value_or("");
  suffix_ = FERRY_TRY(fields.optional_text("end_of_word_suffix")).value_or("");
  if (prefix_.size() + suffix_.size() > kMaxStepText) return fields.bad("an affix is too long");
  const nlohmann::json* dropout = fields.find("dropout");
  if (dropout != nullptr && *dropout != 0.0) {
    return fields.unsupported("'dropout' is not supported");
  }
  byte_fallback_ = FERRY_TRY(fields.flag("byte_fallback", false));
  fuse_unk_ = FERRY_TRY(fields.flag("fuse_unk", false));
  ignore_merges_ = FERRY_TRY(fields.flag("ignore_merges", false));
  const auto unk = FERRY_TRY(fields.optional_text("unk_token"));
  if (unk) unk_ = vocabulary_->find(*unk);
  if (unk && !unk_) {
    return fields.bad(fmt::format("'unk_token' {} is not in the vocabulary", quoted(*unk, 60)));
  }
  return fields.finish();
}

Status Bpe::read_merges(const TokenizerDocument& document) {
  std::string joined;
  for (size_t rank = 0; rank < document.merges.size(); ++rank) {
    const std::string_view left = document.text(document.merges[rank].left);
    const std::string_view right = document.text(document.merges[rank].right);
    if (right.size() < prefix_.size()) {
      return bad_input(fmt::format("{}: model.merges: number {} lacks the prefix of a right side",
                                   document.name, rank));
    }
    joined.assign(left).append(right.substr(prefix_.size()));
    const auto left_id = vocabulary_->find(left), right_id = vocabulary_->find(right);
    const auto id = vocabulary_->find(joined);
    if (!left_id || !right_id || !id) {
      const std::string_view missing = !left_id ? left : !right_id ? right : joined;
      return bad_input(
          fmt::format("{}: model.merges: number {} needs {}, which is not in the "
                      "vocabulary",
                      document.name, rank, quoted(missing, 60)));
    }
    merges_.insert(*left_id, *right_id, {static_cast<uint32_t>(rank), *id});
  }
  return {};
}

void Bpe::find_bytes() {
  byte_tokens_.resize(256);
  fallback_tokens_.resize(256);
  for (size_t byte = 0; byte < 256; ++byte) {
    std::string character;
    utf8::append(character, byte_level::kCharOf[byte]);
    byte_tokens_[byte] = vocabulary_->find(character);
    fallback_tokens_[byte] = vocabulary_->find(fmt::format("<0x{:02X}>", byte));
  }
}

// Returns whether a text may be cut before every marker that follows another character. That holds
// if no merge can join such a pair: no merge has a left part that does not end in the marker and a
// right part that begins with it. Every character must also leave a symbol, because otherwise its
// neighbours would become adjacent.
bool Bpe::marker_is_a_cut(const TokenizerDocument& document) const {
  if (byte_level_ || ignore_merges_ || has_affixes() || !unk_) return false;
  if (!vocabulary_->find(kMarker)) return false;
  return std::ranges::none_of(document.merges, [&](const TokenizerDocument::Merge& merge) {
    return document.text(merge.right).starts_with(kMarker) &&
           !document.text(merge.left).ends_with(kMarker);
  });
}

// -- encoding

void Bpe::encode_word(std::string_view word, std::vector<int64_t>& ids) {
  const bool cached = word.size() <= WordCache::kMaxWord;
  if (cached && cache_.append(word, ids)) return;
  encode_new(word);
  if (cached && !word.empty()) cache_.put(word, symbols_);
  ids.insert(ids.end(), symbols_.begin(), symbols_.end());
}

Status Bpe::encode(std::string_view text, std::vector<int64_t>& ids) {
  if (!cut_at_marker_) {
    encode_word(text, ids);
    return {};
  }
  size_t begin = 0;
  for (size_t at = 0; (at = text.find(kMarker, at)) != std::string_view::npos;) {
    if (at > begin && !text.substr(begin, at - begin).ends_with(kMarker)) {
      encode_word(text.substr(begin, at - begin), ids);
      begin = at;
    }
    at += kMarker.size();
  }
  if (begin < text.size()) encode_word(text.substr(begin), ids);
  return {};
}

// Encodes a word that is not cached. Leaves the ids in symbols_.
void Bpe::encode_new(std::string_view word) {
  symbols_.clear();
  if (ignore_merges_) {
    if (const auto id = whole(word)) {
      symbols_.push_back(*id);
      return;
    }
  }
  if (byte_level_ && !has_affixes()) {
    split_bytes(word);
  } else {
    split_characters(byte_level_ ? spell(word) : word);
  }
  if (symbols_.size() <= kShortWord) {
    merge_short();
  } else {
    merge_long();
  }
}

std::optional<uint32_t> Bpe::whole(std::string_view word) {
  return vocabulary_->find(byte_level_ ? spell(word) : word);
}

std::string_view Bpe::spell(std::string_view word) {
  spelled_.clear();
  for (const char c : word) {
    utf8::append(spelled_, byte_level::kCharOf[static_cast<unsigned char>(c)]);
  }
  return spelled_;
}

void Bpe::split_bytes(std::string_view word) {
  bool unknown = false;  // whether a byte without a token is pending as an unk token
  for (const char c : word) {
    const auto id = byte_tokens_[static_cast<unsigned char>(c)];
    if (!id) {
      if (unknown && !fuse_unk_ && unk_) symbols_.push_back(*unk_);
      unknown = true;
      continue;
    }
    if (unknown && unk_) symbols_.push_back(*unk_);
    unknown = false;
    symbols_.push_back(*id);
  }
  if (unknown && unk_) symbols_.push_back(*unk_);
}

void Bpe::split_characters(std::string_view word) {
  bool unknown = false;
  for (size_t at = 0; at < word.size();) {
    const size_t size = utf8::decode_valid(word, at).size;
    const std::string_view character =
        with_affixes(word.substr(at, size), at == 0, at + size == word.size());
    at += size;
    if (const auto id = vocabulary_->find(character)) {
      if (unknown && unk_) symbols_.push_back(*unk_);
      unknown = false;
      symbols_.push_back(*id);
    } else if (!byte_fallback_ || !add_fallback(character)) {
      if (unknown && !fuse_unk_ && unk_) symbols_.push_back(*unk_);
      unknown = true;
    }
  }
  if (unknown && unk_) symbols_.push_back(*unk_);
}

std::string_view Bpe::with_affixes(std::string_view character, bool first, bool last) {
  if (!has_affixes()) return character;
  affixed_.clear();
  if (!first) affixed_ += prefix_;
  affixed_ += character;
  if (last) affixed_ += suffix_;
  return affixed_;
}

// Adds one token for each byte, or none if one lacks a token. A pending unk token stays behind the
// bytes, as in the reference.
bool Bpe::add_fallback(std::string_view character) {
  const auto token = [&](char c) { return fallback_tokens_[static_cast<unsigned char>(c)]; };
  if (!std::ranges::all_of(character, [&](char c) { return token(c).has_value(); })) return false;
  for (const char c : character) symbols_.push_back(*token(c));
  return true;
}

void Bpe::merge_short() {
  constexpr MergeTable::Merge kNever{UINT32_MAX, 0};
  const auto look_up = [&](size_t i) {
    const auto* merge = merges_.find(symbols_[i], symbols_[i + 1]);
    return merge == nullptr ? kNever : *merge;
  };
  pairs_.clear();
  for (size_t i = 0; i + 1 < symbols_.size(); ++i) pairs_.push_back(look_up(i));
  while (!pairs_.empty()) {
    const auto best = std::ranges::min_element(pairs_, {}, &MergeTable::Merge::rank);
    if (best->rank == kNever.rank) return;
    const std::ptrdiff_t from = best - pairs_.begin();
    const auto at = static_cast<size_t>(from);
    symbols_[at] = best->id;
    symbols_.erase(symbols_.begin() + from + 1);
    pairs_.erase(best);
    if (at > 0) pairs_[at - 1] = look_up(at - 1);
    if (at < pairs_.size()) pairs_[at] = look_up(at);
  }
}

void Bpe::push_candidate(int32_t left, int32_t right) {
  if (left < 0 || right < 0) return;
  const auto* merge = merges_.find(links_[left].id, links_[right].id);
  if (merge == nullptr) return;
  heap_.push_back({merge->rank, merge->id, left});
  std::ranges::push_heap(heap_, later);
}

void Bpe::merge_long() {
  const auto count = static_cast<int32_t>(symbols_.size());
  links_.clear();
  heap_.clear();
  for (int32_t i = 0; i < count; ++i) {
    links_.push_back({symbols_[i], i - 1, i + 1 < count ? i + 1 : -1, false});
  }
  for (int32_t i = 0; i + 1 < count; ++i) push_candidate(i, i + 1);
  while (!heap_.empty()) {
    const Candidate best = heap_.front();
    std::ranges::pop_heap(heap_, later);
    heap_.pop_back();
    Symbol& left = links_[best.at];
    if (left.merged || left.next < 0) continue;
    Symbol& right = links_[left.next];
    // Either symbol may have changed since the candidate was found.
    const auto* merge = merges_.find(left.id, right.id);
    if (merge == nullptr || merge->id != best.id) continue;
    left.id = best.id;
    right.merged = true;
    left.next = right.next;
    if (left.next >= 0) links_[left.next].previous = best.at;
    push_candidate(left.previous, best.at);
    push_candidate(best.at, left.next);
  }
  symbols_.clear();
  for (const Symbol& symbol : links_) {
    if (!symbol.merged) symbols_.push_back(symbol.id);
  }
}

}  // namespace ferry::text
