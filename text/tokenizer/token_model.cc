#include "text/tokenizer/token_model.h"

#include <fmt/format.h>

#include "core/text.h"
#include "core/utf8.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/word_level.h"
#include "text/tokenizer/word_piece.h"

namespace ferry::text {
namespace {

using ModelPtr = std::unique_ptr<TokenModel>;

template <class Model>
Result<ModelPtr> boxed(Result<Model> model) {
  if (!model) return model.pass();
  return std::make_unique<Model>(*std::move(model));
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
