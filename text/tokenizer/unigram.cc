#include "text/tokenizer/unigram.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"
#include "core/utf8.h"

namespace ferry::text {
namespace {

// The score of an unknown character is that of the worst token minus this penalty.
constexpr double kUnknownPenalty = 10.0;
// Ids are returned at the first position after this many bytes through which every path goes.
constexpr size_t kChunk = 4096;

}  // namespace

// -- reading

Result<Unigram> Unigram::make(const TokenizerDocument& document, const Vocabulary& vocabulary) {
  Unigram unigram;
  unigram.vocabulary_ = &vocabulary;
  unigram.where_ = document.name + ": model";
  FERRY_RETURN_IF_ERROR(unigram.read_options(document));
  unigram.scores_ = document.scores;
  std::vector<PrefixTrie::Entry> entries;
  entries.reserve(document.vocab.size());
  for (const auto& [slice, id] : document.vocab) {
    entries.emplace_back(document.text(slice), id);
  }
  if (!document.scores.empty()) {
    unigram.unknown_score_ = std::ranges::min(document.scores) - kUnknownPenalty;
  }
  unigram.trie_ = FERRY_TRY(PrefixTrie::make(std::move(entries), unigram.where_ + ": vocab"));
  for (int byte = 0; byte < 256; ++byte) {
    unigram.fallback_tokens_.push_back(vocabulary.find(fmt::format("<0x{:02X}>", byte)));
  }
  return unigram;
}

Status Unigram::read_options(const TokenizerDocument& document) {
  StepFields fields = FERRY_TRY(StepFields::of(document.root.at("model"), where_));
  fields.find("type");
  fields.find("vocab");
  if (!document.has_scores) return fields.bad("'vocab' is not a list of tokens with scores");
  byte_fallback_ = FERRY_TRY(fields.flag("byte_fallback", false));
  if (fields.find("unk_id") != nullptr) {
    const auto last = static_cast<int64_t>(document.vocab.size()) - 1;
    unk_ = static_cast<uint32_t>(FERRY_TRY(fields.integer("unk_id", 0, last)));
  }
  return fields.finish();
}

// -- encoding

void Unigram::reach(size_t place, size_t base, const Node& way) {
  if (place - base >= nodes_.size()) nodes_.resize(place - base + 1);
  Node& node = nodes_[place - base];
  if (node.begin == kUnreached || way.score > node.score) node = way;
}

// Tries every token at the character `at`. Returns the size of the character in bytes.
Result<size_t> Unigram::advance(std::string_view word, size_t at, size_t base) {
  const double score = nodes_[at - base].score;
  const size_t character = utf8::decode_valid(word, at).size;
  bool has_character = false;
  uint32_t node = PrefixTrie::kRoot;
  for (size_t end = at; end < word.size();) {
    node = trie_.child(node, word[end]);
    if (node == PrefixTrie::kNone) break;
    ++end;
    const uint32_t id = trie_.value(node);
    if (id == PrefixTrie::kNone) continue;
    reach(end, base, {score + scores_[id], at, id});
    has_character |= end - at == character;
  }
  if (has_character) return character;
  if (!unk_) return bad_input(where_ + ": a text needs an unknown token, and 'unk_id' is missing");
  reach(at + character, base, {score + unknown_score_, at, *unk_});
  return character;
}

Status Unigram::encode(std::string_view word, std::vector<int64_t>& ids) {
  size_t base = 0;
  nodes_.assign(1, Node{});
  unknown_begin_ = unknown_end_ = 0;
  for (size_t at = 0; at < word.size();) {
    at += FERRY_TRY(advance(word, at, base));
    // No path reaches beyond this position, so all paths go through it. The sum of scores
    // continues, because a sum of floating-point numbers depends on where it begins.
    if (at - base + 1 != nodes_.size() || (at - base < kChunk && at < word.size())) continue;
    take_path(word, base, at, ids);
    nodes_.front() = {nodes_.back().score, kUnreached, 0};
    nodes_.resize(1);
    base = at;
  }
  flush_unknown(word, ids);
  return {};
}

// Appends the ids of the best path from the base to `end`. Adjacent unknown tokens become one.
void Unigram::take_path(std::string_view word, size_t base, size_t end, std::vector<int64_t>& ids) {
  path_.clear();
  path_ids_.clear();
  while (end > base) {
    const Node& node = nodes_[end - base];
    path_.emplace_back(node.begin, end);
    path_ids_.push_back(node.id);
    end = node.begin;
  }
  for (size_t i = path_.size(); i-- > 0;) {
    const auto [from, to] = path_[i];
    if (unk_ && path_ids_[i] == *unk_) {
      if (unknown_begin_ == unknown_end_) unknown_begin_ = from;
      unknown_end_ = to;
      continue;
    }
    flush_unknown(word, ids);
    ids.push_back(path_ids_[i]);
  }
}

void Unigram::flush_unknown(std::string_view word, std::vector<int64_t>& ids) {
  if (unknown_begin_ == unknown_end_) return;
  add(word.substr(unknown_begin_, unknown_end_ - unknown_begin_), ids);
  unknown_begin_ = unknown_end_ = 0;
}

// Adds text that no path of tokens covers. It becomes one token if the vocabulary has the text (the
// unknown token as it is written), otherwise its bytes, otherwise the unknown token.
void Unigram::add(std::string_view text, std::vector<int64_t>& ids) const {
  if (const auto id = vocabulary_->find(text)) return ids.push_back(*id);
  const auto token = [&](char c) { return fallback_tokens_[static_cast<unsigned char>(c)]; };
  if (byte_fallback_ && std::ranges::all_of(text, [&](char c) { return token(c).has_value(); })) {
    for (const char c : text) ids.push_back(*token(c));
    return;
  }
  ids.push_back(*unk_);
}

}  // namespace ferry::text
