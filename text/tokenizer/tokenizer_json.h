// TokenizerDocument: a tokenizer.json taken in. The vocabulary and the merges, which are nearly all
// of the file, come as flat tables; everything else as a JSON tree, read by the parts that own it.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::text {

inline constexpr int64_t kMaxTokenId = (1 << 22) - 1;
inline constexpr size_t kMaxMerges = 1 << 23;
// The largest length of strings that steps of a tokenizer insert into a text, and of added tokens.
inline constexpr size_t kMaxStepText = 512;

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

  std::string name;     // begins the messages
  nlohmann::json root;  // model.vocab and model.merges are null in it
  std::string strings;
  std::vector<Token> vocab;    // in file order
  std::vector<double> scores;  // of the tokens of `vocab`, where that is a list of [token, score]
  std::vector<Merge> merges;   // by rank
  bool has_vocab = false, has_scores = false, has_merges = false;

  std::string_view text(Slice slice) const {
    return std::string_view(strings).substr(slice.offset, slice.size);
  }
};

// Strict JSON. kBadInput for a vocabulary that is neither {token: id} nor [[token, score], ...],
// with ids up to kMaxTokenId, or merges that are neither "left right" nor [left, right].
Result<TokenizerDocument> parse_tokenizer_document(std::string_view json, const std::string& name);

// The fields of one JSON object, each asked for by name. A field that nobody asked for is something
// that is not built: finish() refuses it by name.
class StepFields {
 public:
  // kBadInput unless `value` is an object; `where` begins the messages: "FILE: normalizer".
  static Result<StepFields> of(const nlohmann::json& value, std::string where);

  const std::string& where() const { return where_; }
  // nullptr where absent or null.
  const nlohmann::json* find(std::string_view key);
  Result<std::string> text(std::string_view key);
  Result<std::optional<std::string>> optional_text(std::string_view key);
  Result<bool> flag(std::string_view key, bool fallback);
  Result<int64_t> integer(std::string_view key, int64_t least, int64_t most);
  // The elements of the array under `key`.
  Result<const nlohmann::json*> array(std::string_view key);
  Status finish() const;

  // "WHERE: WHAT" as kBadInput and as kUnsupported.
  Failure bad(std::string_view what) const;
  Failure unsupported(std::string_view what) const;
  Failure unknown_type(const std::string& type) const;

 private:
  const nlohmann::json* object_ = nullptr;
  std::string where_;
  std::vector<std::string> asked_;
};

// Calls `visit` with every step that `value` stands for, and then finishes its fields: none for
// null, those in `list` of a "Sequence", sequences within it included, else `value` itself.
// kBadInput where sequences are nested more than 8 deep or there are more than 64 steps.
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
