// Tokenizer: text to token ids and back, as a tokenizer.json of Hugging Face's tokenizers describes
// it. A text goes through: cutting at added tokens, normalizer, pre-tokenizer, model,
// post-processor; ids through: their texts, decoder. Whatever a file asks for that is not built
// here is refused when it is loaded.
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
// Twice as much as the largest that are known. Reading takes a dozen times as much memory.
inline constexpr uint64_t kMaxTokenizerFile = 64 << 20;

struct TokenizerDocument;  // text/tokenizer/tokenizer_json.h

// Not thread-safe: it remembers words.
class Tokenizer {
 public:
  // kIo, kBadInput for malformed files, kUnsupported, by name, for what is not built.
  static Result<Tokenizer> load(const std::string& path);
  // `name` begins the messages.
  static Result<Tokenizer> parse(std::string_view json, const std::string& name);
  static Result<Tokenizer> make(const TokenizerDocument& document);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // kBadInput for text that is not UTF-8 or larger than 256 MiB. With `add_special` the
  // post-processor sets its tokens; control tokens within the text are recognised either way.
  Result<std::vector<int64_t>> encode(std::string_view text, bool add_special);
  // With special tokens, and cut to `most` tokens with them: the text loses tokens at its end, or
  // at its begin. kUsage where the special tokens alone are more.
  enum class Cut { kEnd, kBegin };
  Result<std::vector<int64_t>> encode_cut(std::string_view text, size_t most, Cut cut);
  // Always valid UTF-8. Ids that no token has are left out; with `skip_special` special tokens too.
  Result<std::string> decode(std::span<const int64_t> ids, bool skip_special) const;

  // Added tokens and the model's.
  std::optional<int64_t> find(std::string_view token) const;
  // One more than the largest id of both.
  int64_t id_bound() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ferry::text
