// Embedder computes vectors of texts with a bundle whose program kind is encoder.
#pragma once

#include <ferry/bundle.h>
#include <ferry/engine.h>
#include <ferry/result.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ferry {
inline namespace v0 {

struct EmbedOptions {
  // Text that is put before each input text. If absent, `prompt_name` selects a prompt of the
  // bundle's config_sentence_transformers.json. If that is absent too, the default prompt of this
  // file is used, if it has one.
  std::optional<std::string> prompt = {};
  std::string prompt_name = {};
  bool truncate = false;              // cut texts that are too long; otherwise they are an error
  std::optional<int64_t> width = {};  // keep only the first values of a vector
  bool normalize = false;             // scale vectors to length 1
};

// Move-only. Holds its bundle and its engine.
class Embedder {
 public:
  static Result<Embedder> load(const Bundle& bundle, const Engine& engine,
                               std::optional<uint64_t> memory = {});
  ~Embedder();
  Embedder(Embedder&&) noexcept;
  Embedder& operator=(Embedder&&) noexcept;

  int64_t width() const;       // values per vector; 0 if the bundle has no vectors
  int64_t max_tokens() const;  // tokens of the longest text

  Result<std::vector<float>> embed(const std::string& text, const EmbedOptions& options = {});
  // Returns the vector of given tokens. Prompts and truncation do not apply to tokens.
  Result<std::vector<float>> embed_tokens(std::span<const int64_t> tokens,
                                          const EmbedOptions& options = {});
  // Returns the last hidden states of all tokens, one after the other.
  Result<std::vector<float>> states(std::span<const int64_t> tokens);

 private:
  struct Impl;
  explicit Embedder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace v0
}  // namespace ferry
