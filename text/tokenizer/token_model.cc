#include "text/tokenizer/token_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/text.h"
#include "core/utf8.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/sentencepiece_words.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/word_piece.h"

namespace ferry::text {

Result<Vocabulary> Vocabulary::make(const TokenizerDocument& document) {
  Vocabulary v;
  uint32_t largest = 0;
  size_t bytes = 0;
  for (const auto& [slice, id] : document.vocab) {
    largest = std::max(largest, id);
    bytes += slice.size;
  }
  if (!document.vocab.empty()) v.tokens_.resize(size_t{largest} + 1);
  v.ids_.reserve(document.vocab.size());
  v.strings_ = std::make_unique<std::string>();
  v.strings_->reserve(bytes);
  for (const auto& [slice, id] : document.vocab) {
    const size_t offset = v.strings_->size();
    *v.strings_ += document.text(slice);
    const std::string_view text = std::string_view(*v.strings_).substr(offset);
    if (!v.ids_.emplace(text, id).second) {
      return bad_input(fmt::format("{}: model.vocab: the token {} is there twice", document.name,
                                   quoted(text, 60)));
    }
    if (v.tokens_[id].data() != nullptr) {
      return bad_input(fmt::format("{}: model.vocab: {} and {} have the id {}", document.name,
                                   quoted(v.tokens_[id], 60), quoted(text, 60), id));
    }
    v.tokens_[id] = text;
  }
  return v;
}

namespace {

using ModelPtr = std::unique_ptr<TokenModel>;

template <class Model>
Result<ModelPtr> boxed(Result<Model> model) {
  if (!model) return model.pass();
  return std::make_unique<Model>(*std::move(model));
}

// WordLevel maps a word to its token or to the unknown token, as the WordLevel model of
// tokenizer.json describes it.
class WordLevel final : public TokenModel {
 public:
  // `vocabulary` must outlive the model.
  static Result<WordLevel> make(const TokenizerDocument& document, const Vocabulary& vocabulary);

  Status encode(std::string_view word, std::vector<int64_t>& ids) override;

 private:
  const Vocabulary* vocabulary_ = nullptr;
  std::string where_;
  std::optional<uint32_t> unk_;
};

Result<WordLevel> WordLevel::make(const TokenizerDocument& document, const Vocabulary& vocabulary) {
  WordLevel model;
  model.vocabulary_ = &vocabulary;
  model.where_ = document.name + ": model";
  StepFields fields = FERRY_TRY(StepFields::of(document.root.at("model"), model.where_));
  fields.find("type");
  fields.find("vocab");
  if (!document.has_vocab) return fields.bad("'vocab' is missing");
  model.unk_ = vocabulary.find(FERRY_TRY(fields.text("unk_token")));
  FERRY_RETURN_IF_ERROR(fields.finish());
  return model;
}

Status WordLevel::encode(std::string_view word, std::vector<int64_t>& ids) {
  if (word.empty()) return {};
  const auto known = vocabulary_->find(word);
  if (!known && !unk_) {
    return bad_input(fmt::format("{}: {} is no token, and 'unk_token' is not in the vocabulary",
                                 where_, quoted(word, 60)));
  }
  ids.push_back(known ? *known : *unk_);
  return {};
}

// Spells bytes in the byte-level alphabet for a model that works on text.
class Spelled final : public TokenModel {
 public:
  explicit Spelled(ModelPtr model) : model_(std::move(model)) {}
  Status encode(std::string_view word, std::vector<int64_t>& ids) override {
    spelled_.clear();
    for (const char c : word) {
      utf8::append(spelled_, byte_level::kCharOf[static_cast<unsigned char>(c)]);
    }
    return model_->encode(spelled_, ids);
  }

 private:
  ModelPtr model_;
  std::string spelled_;
};

// Old files do not name the type. The reference then takes the first model whose fields are
// present.
Result<std::string> type_of(const TokenizerDocument& document, StepFields& fields) {
  const auto type = FERRY_TRY(fields.optional_text("type"));
  if (type) return *type;
  if (document.has_merges) return std::string("BPE");
  if (document.has_scores) return std::string("Unigram");
  const bool is_word_piece = fields.find("max_input_chars_per_word") != nullptr;
  return std::string(is_word_piece ? "WordPiece" : "WordLevel");
}

}  // namespace

Result<ModelPtr> TokenModel::make(const TokenizerDocument& document, const Vocabulary& vocabulary,
                                  bool byte_level) {
  if (document.sentencepiece != nullptr) {
    return boxed(SentencePieceWords::make(document, vocabulary));
  }
  const std::string where = document.name + ": model";
  const auto value = document.root.find("model");
  if (value == document.root.end()) return bad_input(where + ": missing");
  StepFields fields = FERRY_TRY(StepFields::of(*value, where));
  const std::string type = FERRY_TRY(type_of(document, fields));
  if (type == "BPE") return boxed(Bpe::make(document, vocabulary, byte_level));
  ModelPtr model;
  if (type == "Unigram") {
    model = FERRY_TRY(boxed(Unigram::make(document, vocabulary)));
  } else if (type == "WordPiece") {
    model = FERRY_TRY(boxed(WordPiece::make(document, vocabulary)));
  } else if (type == "WordLevel") {
    model = FERRY_TRY(boxed(WordLevel::make(document, vocabulary)));
  } else {
    return fields.unknown_type(type);
  }
  if (byte_level) model = std::make_unique<Spelled>(std::move(model));
  return model;
}

}  // namespace ferry::text
