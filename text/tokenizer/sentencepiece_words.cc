#include "text/tokenizer/sentencepiece_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/utf8.h"

namespace ferry::text {
namespace {

using PieceKind = SentencePieceModel::PieceKind;

constexpr std::string_view kBlank = "\xE2\x96\x81";  // U+2581
constexpr std::string_view kCodeBegin = ">>", kCodeEnd = "<<";
// The score of an unknown character is that of the worst piece minus this penalty.
constexpr float kUnknownPenalty = 10.0F;
constexpr size_t kMostBytes = size_t{1} << 30;  // of a normalised text

// Returns what the class does not have and the model asks for; else nullptr.
const char* foreign_feature(const SentencePieceModel& model) {
  const auto has = [&](PieceKind kind) {
    return std::ranges::count(model.pieces, kind, &SentencePieceModel::Piece::kind) > 0;
  };
  return model.kind != SentencePieceModel::Kind::kUnigram ? "a model that is no Unigram"
         : model.byte_fallback || has(PieceKind::kByte)   ? "byte_fallback"
         : has(PieceKind::kUserDefined)                   ? "pieces that the user has defined"
         : model.white_space_is_suffix                    ? "treat_whitespace_as_suffix"
         : model.denormalizes                             ? "a denormalizer"
         : !model.escape_whitespaces                      ? "escape_whitespaces = false"
                                                          : nullptr;
}

}  // namespace

Result<SentencePieceWords> SentencePieceWords::make(const TokenizerDocument& document,
                                                    const Vocabulary& vocabulary) {
  SentencePieceWords out;
  out.vocabulary_ = &vocabulary;
  out.model_ = document.sentencepiece;
  const SentencePieceModel& model = *out.model_;
  if (const char* what = foreign_feature(model)) {
    return fail(ErrorCode::kUnsupported, fmt::format("{}: {} is not supported for the tokenizer of "
                                                     "Marian",
                                                     document.name, what));
  }
  const auto unk = vocabulary.find(document.root.at("model").at("unk_token").get<std::string>());
  if (!unk) return bad_input(document.name + ": the unknown token is not in the vocabulary");
  out.unk_ = *unk;
  float least = std::numeric_limits<float>::max();
  std::vector<PrefixTrie::Entry> entries;
  for (size_t i = 0; i < model.pieces.size(); ++i) {
    const SentencePieceModel::Piece& piece = model.pieces[i];
    if (piece.kind != PieceKind::kNormal) continue;
    entries.emplace_back(piece.text, static_cast<uint32_t>(i));
    least = std::min(least, piece.score);
  }
  if (entries.empty()) return bad_input(document.name + ": there is no piece of text");
  out.unknown_score_ = least - kUnknownPenalty;
  out.trie_ = FERRY_TRY(PrefixTrie::make(std::move(entries), document.name + ": pieces"));
  if (!model.charsmap.empty()) {
    out.charsmap_ = FERRY_TRY(Charsmap::parse(model.charsmap, document.name + ": charsmap"));
  }
  return out;
}

Result<std::string> SentencePieceWords::normalized(std::string_view text) const {
  const bool trims = model_->remove_extra_whitespaces;
  bool behind_space = trims;
  // Without trimming the prefix stands before every text, else before what is left of it.
  std::string out(!trims && !text.empty() && model_->add_dummy_prefix ? kBlank : "");
  for (size_t at = 0; at < text.size();) {
    Charsmap::Longest found;
    if (charsmap_) found = FERRY_TRY(charsmap_->longest(text.substr(at)));
    const size_t size = found.size > 0 ? found.size : utf8::decode_valid(text, at).size;
    std::string_view part = found.size > 0 ? found.text : text.substr(at, size);
    at += size;
    while (behind_space && part.starts_with(' ')) part.remove_prefix(1);
    if (part.empty()) continue;
    if (trims && out.empty() && model_->add_dummy_prefix) out += kBlank;
    for (const char c : part) {
      if (c == ' ') {
        out += kBlank;
      } else {
        out += c;
      }
    }
    behind_space = trims && part.ends_with(' ');
    if (out.size() > kMostBytes) return bad_input("a text becomes too long");
  }
  while (trims && out.ends_with(kBlank)) out.resize(out.size() - kBlank.size());
  return out;
}

// Sums are those of f32.
void SentencePieceWords::reach(size_t end, float score, size_t begin, bool known) {
  Node& node = nodes_[end];
  if (node.begin != SIZE_MAX && !(score > node.score)) return;
  node = {score, begin, known};
}

void SentencePieceWords::find_paths(std::string_view text) {
  nodes_.assign(text.size() + 1, Node{});
  for (size_t at = 0; at < text.size();) {
    const float score = nodes_[at].score;
    const size_t character = utf8::decode_valid(text, at).size;
    bool has_character = false;
    uint32_t node = PrefixTrie::kRoot;
    for (size_t end = at; end < text.size();) {
      node = trie_.child(node, text[end]);
      if (node == PrefixTrie::kNone) break;
      ++end;
      const uint32_t piece = trie_.value(node);
      if (piece == PrefixTrie::kNone) continue;
      reach(end, model_->pieces[piece].score + score, at, /*known=*/true);
      has_character |= end - at == character;
    }
    if (!has_character) {
      reach(at + character, unknown_score_ + score, at, /*known=*/false);
    }
    at += character;
  }
}

void SentencePieceWords::add(std::string_view piece, std::vector<int64_t>& ids) const {
  ids.push_back(vocabulary_->find(piece).value_or(unk_));
}

Status SentencePieceWords::encode(std::string_view text, std::vector<int64_t>& ids) {
  if (text.starts_with(kCodeBegin)) {
    const size_t end = text.find(kCodeEnd);
    if (end != std::string_view::npos) {
      add(text.substr(0, end + kCodeEnd.size()), ids);
      text.remove_prefix(end + kCodeEnd.size());
    }
  }
  const std::string words = FERRY_TRY(normalized(text));
  find_paths(words);
  std::vector<std::pair<size_t, size_t>> pieces;  // begin and end, the last piece first
  for (size_t end = words.size(); end > 0;) {
    const Node node = nodes_[end];
    // Unknown characters behind each other are one piece.
    const bool joins = !node.known && !pieces.empty() && pieces.back().first == end &&
                       !nodes_[pieces.back().second].known;
    if (joins) {
      pieces.back().first = node.begin;
    } else {
      pieces.emplace_back(node.begin, end);
    }
    end = node.begin;
  }
  for (size_t i = pieces.size(); i-- > 0;) {
    const auto [begin, end] = pieces[i];
    add(std::string_view(words).substr(begin, end - begin), ids);
  }
  return {};
}

PieceTexts::PieceTexts(const SentencePieceModel& model)
    : strips_(model.add_dummy_prefix || model.remove_extra_whitespaces),
      trims_(model.remove_extra_whitespaces) {
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    const bool text = piece.kind == PieceKind::kNormal || piece.kind == PieceKind::kUnused;
    if (text) known_.insert(piece.text);
  }
}

void PieceTexts::add_special(std::string_view content) {
  out_->push_back(std::string(content) + " ");
  begins_ = true;
}

void PieceTexts::add(std::string_view piece) {
  const bool blank = begins_ && strips_ && piece.starts_with(kBlank) && known_.contains(piece);
  if (blank) piece.remove_prefix(kBlank.size());
  begins_ = begins_ && piece.empty() && (trims_ || !blank);
  if (!piece.empty()) out_->emplace_back(piece);
}

}  // namespace ferry::text
