// TokenizerDocument is a parsed tokenizer.json. The vocabulary and the merges, which are nearly all
// of the file, are flat tables. The rest is a JSON tree, which each component of the tokenizer
// reads for itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::text {

inline constexpr int64_t kMaxTokenId = (1 << 22) - 1;
inline constexpr size_t kMaxMerges = 1 << 23;
// The longest text that a step of a tokenizer inserts, or that an added token has.
inline constexpr size_t kMaxStepText = 512;

struct SentencePieceModel;  // text/tokenizer/sentencepiece_model.h

struct TokenizerDocument {
  struct Slice {
    uint32_t offset, size;  // into `strings`
  };
  struct Token {
    Slice text;
    uint32_t id;
  };
  struct Merge {
    Slice left, right;
  };

  std::string name;     // begins error messages
  nlohmann::json root;  // without model.vocab and model.merges, which are null in it
  std::string strings;
  std::vector<Token> vocab;    // in file order
  std::vector<double> scores;  // of the tokens of `vocab`, if the file has [token, score] pairs
  std::vector<Merge> merges;   // by rank
  // The model whose pieces the tokens are, where no tokenizer.json can state it (Marian).
  std::shared_ptr<const SentencePieceModel> sentencepiece = nullptr;
  // Added tokens are not recognised within texts, which no tokenizer.json can state (tekken.json).
  bool plain_texts = false;
  bool has_vocab = false, has_scores = false, has_merges = false;

  std::string_view text(Slice slice) const {
    return std::string_view(strings).substr(slice.offset, slice.size);
  }
};

// Parses strict JSON. kBadInput for a vocabulary that is neither {token: id} nor [[token, score],
// ...], or whose ids are above kMaxTokenId, and for merges that are neither "left right" nor [left,
// right].
Result<TokenizerDocument> parse_tokenizer_document(std::string_view json, const std::string& name);

// StepFields gives the fields of one JSON object by name. finish() refuses, by name, a field that
// was not read, because it asks for an unsupported feature.
class StepFields {
 public:
  // kBadInput unless `value` is an object. `where`, such as "FILE: normalizer", begins error
  // messages.
  static Result<StepFields> of(const nlohmann::json& value, std::string where);

  const std::string& where() const { return where_; }
  // Returns nullptr if the field is absent or null.
  const nlohmann::json* find(std::string_view key);
  Result<std::string> text(std::string_view key);
  Result<std::optional<std::string>> optional_text(std::string_view key);
  Result<bool> flag(std::string_view key, bool fallback);
  Result<int64_t> integer(std::string_view key, int64_t least, int64_t most);
  // Returns the array under `key`.
  Result<const nlohmann::json*> array(std::string_view key);
  Status finish() const;

  // Both return the message "WHERE: WHAT", as kBadInput and as kUnsupported.
  Failure bad(std::string_view what) const;
  Failure unsupported(std::string_view what) const;
  Failure unknown_type(const std::string& type) const;

 private:
  const nlohmann::json* object_ = nullptr;
  std::string where_;
  std::vector<std::string> asked_;
};

// Calls `visit` for every step of `value`, and then finishes its fields. Null has no steps. A
// "Sequence" has those in its field `list`, including nested sequences. Any other `value` is one
// step. kBadInput if sequences are nested more than 8 deep or there are more than 64 steps.
using StepVisitor = std::function<Status(StepFields&, const std::string& type)>;
Status for_each_step(const nlohmann::json& value, const std::string& where, std::string_view list,
                     const StepVisitor& visit);

// The pattern of a Split or Replace: {"String": ...} or {"Regex": ...}.
struct StepPattern {
  bool is_regex = false;
  std::string text;  // not empty
};
Result<StepPattern> read_pattern(StepFields& fields);

}  // namespace ferry::text
