#include "text/tokenizer/word_piece.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.h"

namespace ferry::text {
namespace {

size_t characters_in(std::string_view text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

Result<WordPiece> WordPiece::make(const TokenizerDocument& document, const Vocabulary& vocabulary) {
  const std::string where = document.name + ": model";
  StepFields fields = FERRY_TRY(StepFields::of(document.root.at("model"), where));
  fields.find("type");
  fields.find("vocab");
  if (!document.has_vocab) return fields.bad("'vocab' is missing");
  WordPiece model;
  const std::string unk = FERRY_TRY(fields.text("unk_token"));
  const std::string prefix = FERRY_TRY(fields.text("continuing_subword_prefix"));
  if (prefix.size() > kMaxStepText) return fields.bad("'continuing_subword_prefix' is too long");
  model.max_characters_ =
      static_cast<size_t>(FERRY_TRY(fields.integer("max_input_chars_per_word", 0, INT64_MAX)));
  FERRY_RETURN_IF_ERROR(fields.finish());
  const auto id = vocabulary.find(unk);
  if (!id) {
    return fields.bad(fmt::format("'unk_token' {} is not in the vocabulary", quoted(unk, 60)));
  }
  model.unk_ = *id;
  std::vector<PrefixTrie::Entry> entries;
  entries.reserve(document.vocab.size());
  for (const auto& [slice, number] : document.vocab) {
    entries.emplace_back(document.text(slice), number);
  }
  model.trie_ = FERRY_TRY(PrefixTrie::make(std::move(entries), where + ": vocab"));
  model.continuing_ = model.trie_.walk(prefix);
  return model;
}

Status WordPiece::encode(std::string_view word, std::vector<int64_t>& ids) {
  const size_t before = ids.size();
  const auto give_up = [&]() -> Status {
    ids.resize(before);
    ids.push_back(unk_);
    return {};
  };
  if (characters_in(word) > max_characters_) return give_up();
  for (size_t at = 0; at < word.size();) {
    uint32_t node = at == 0 ? PrefixTrie::kRoot : continuing_, best = PrefixTrie::kNone;
    size_t end = at;
    for (size_t i = at; node != PrefixTrie::kNone && i < word.size(); ++i) {
      node = trie_.child(node, word[i]);
      if (node == PrefixTrie::kNone || trie_.value(node) == PrefixTrie::kNone) continue;
      best = trie_.value(node);
      end = i + 1;
    }
    if (best == PrefixTrie::kNone) return give_up();
    ids.push_back(best);
    at = end;
  }
  return {};
}

}  // namespace ferry::text
