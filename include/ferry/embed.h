// Embedder: vectors of texts, by a bundle of program kind encoder.
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
  // What is put before each text. Without it, `prompt_name` is a prompt of the bundle's
  // config_sentence_transformers.json; without that, it is the prompt that this file names as the
  // default, if any.
  std::optional<std::string> prompt = {};
  std::string prompt_name = {};
  bool truncate = false;              // cut texts that are too long; otherwise they are refused
  std::optional<int64_t> width = {};  // keep the first values of a vector
  bool normalize = false;             // vectors of length 1
};

// Move-only; keeps its bundle and its engine.
class Embedder {
 public:
  static Result<Embedder> load(const Bundle& bundle, const Engine& engine,
                               std::optional<uint64_t> memory = {});
  ~Embedder();
  Embedder(Embedder&&) noexcept;
  Embedder& operator=(Embedder&&) noexcept;

  int64_t width() const;       // of a vector; 0: the bundle makes none
  int64_t max_tokens() const;  // of a text

  Result<std::vector<float>> embed(const std::string& text, const EmbedOptions& options = {});
  // Of tokens, which prompts and truncation do not apply to.
  Result<std::vector<float>> embed_tokens(std::span<const int64_t> tokens,
                                          const EmbedOptions& options = {});
  // The last hidden state of each token, one after the other.
  Result<std::vector<float>> states(std::span<const int64_t> tokens);

 private:
  struct Impl;
  explicit Embedder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace v0
}  // namespace ferry
