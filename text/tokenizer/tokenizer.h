// Tokenizer maps text to token ids and back, as a tokenizer.json of Hugging Face's tokenizers
// describes it. Encoding: the text is cut at added tokens, then goes through normalizer,
// pre-tokenizer, model and post-processor. Decoding: the texts of the ids go through the decoder.
// Loading refuses a file that asks for an unsupported feature.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::text {

inline constexpr const char* kTokenizerFile = "tokenizer.json";
// The limit is twice the size of the largest known file. Reading takes twelve times as much memory.
inline constexpr uint64_t kMaxTokenizerFile = 64 << 20;

struct TokenizerDocument;  // text/tokenizer/tokenizer_json.h
struct TypedTokens;        // text/tokenizer/tokenizer_steps.h

// Tokenizer is not thread-safe, because it caches words.
class Tokenizer {
 public:
  // kIo; kBadInput for malformed files; kUnsupported, by name, for unsupported features.
  static Result<Tokenizer> load(const std::string& path);
  // `name` begins error messages.
  static Result<Tokenizer> parse(std::string_view json, const std::string& name);
  static Result<Tokenizer> make(const TokenizerDocument& document);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // kBadInput for text that is not UTF-8 or larger than 256 MiB. With `add_special` the
  // post-processor adds its tokens. Control tokens within the text are recognised with and without
  // it.
  Result<std::vector<int64_t>> encode(std::string_view text, bool add_special);
  // Encodes with special tokens, at most `most` tokens in all. Tokens of the text are cut at its
  // end or at its begin. kUsage if the special tokens alone are more than `most`.
  enum class Cut { kEnd, kBegin };
  // Returns the side at which `truncation` of the file cuts; nullopt if it has none.
  std::optional<Cut> cut() const;
  Result<std::vector<int64_t>> encode_cut(std::string_view text, size_t most, Cut cut);
  // A text or a pair of texts, how many tokens it may have in all, and whether spans are wanted,
  // which pairs do not have. Of a pair, the longer text is cut first.
  struct Input {
    std::string_view text = {};
    std::optional<std::string_view> second = {};
    std::optional<size_t> most = {};
    Cut cut = Cut::kEnd;
    bool spans = false;
  };
  // Encodes with special tokens. Errors are those of encode() and encode_cut(), and kUnsupported
  // for a pair that the post-processor does not know, and for spans that cannot be told.
  Result<TypedTokens> encode(const Input& input);
  // Returns the text of tokens that token() returned, or of texts in their place.
  Result<std::string> join(std::vector<std::string> tokens) const;
  // Returns the id of the token for unknown text; nullopt if there is none.
  std::optional<int64_t> unknown() const;
  // Whether tokens inside of words are written otherwise than those that begin one.
  bool marks_subwords() const;
  // Returns the token as the vocabulary has it; nullopt for an id without one.
  std::optional<std::string> token(int64_t id) const;
  // Returns valid UTF-8. Ids without a token are ignored; with `skip_special` special tokens too.
  Result<std::string> decode(std::span<const int64_t> ids, bool skip_special) const;

  // Searches added tokens and the model's vocabulary.
  std::optional<int64_t> find(std::string_view token) const;
  // Returns the largest id of added tokens and vocabulary, plus one.
  int64_t id_bound() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// TextStream decodes ids one at a time. The concatenated output equals the text of all ids decoded
// at once. There is one exception: byte-fallback tokens that form valid text and are followed by
// invalid bytes, because that text was returned before.
class TextStream {
 public:
  // `tokenizer` must outlive this object. Special tokens give no text.
  explicit TextStream(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}

  // Returns the text that `id` completes, which is empty while a character is incomplete.
  Result<std::string> push(int64_t id);
  // Returns the remaining text, with incomplete characters as U+FFFD.
  Result<std::string> finish();

 private:
  const Tokenizer* tokenizer_;
  // The last ids that gave text, as context, and the ids behind them that have not given text yet.
  std::vector<int64_t> window_;
  size_t context_ = 0;  // the number of ids of `window_` that are context
  std::string given_;   // the text of the context
};

}  // namespace ferry::text
