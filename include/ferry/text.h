// Converts texts to token ids and back, and chats to texts.
#pragma once

#include <ferry/bundle.h>
#include <ferry/result.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ferry {
inline namespace v0 {

// Not thread-safe.
class Tokenizer {
 public:
  // Loads the tokenizer of a checkpoint or a bundle directory, of a model of the Hugging Face cache
  // ("Qwen/Qwen3-0.6B"), or a single tokenizer file.
  static Result<Tokenizer> load(const std::string& path);
  static Result<Tokenizer> of(const Bundle& bundle);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // `add_special` adds the tokens that begin and end a text.
  Result<std::vector<int64_t>> encode(std::string_view text, bool add_special = true);
  // Returns valid UTF-8. Ids without a token are left out. `skip_special` leaves out special tokens
  // too.
  Result<std::string> decode(std::span<const int64_t> tokens, bool skip_special = true) const;
  std::optional<int64_t> find(std::string_view token) const;
  // Returns one more than the largest id.
  int64_t id_bound() const;

  struct Impl;
  const std::shared_ptr<Impl>& impl() const { return impl_; }

 private:
  explicit Tokenizer(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

// Decodes tokens that arrive one at a time into whole characters.
class TokenStream {
 public:
  explicit TokenStream(const Tokenizer& tokenizer);
  ~TokenStream();
  TokenStream(TokenStream&&) noexcept;
  TokenStream& operator=(TokenStream&&) noexcept;

  // Returns the text that `token` completes; empty while a character is incomplete.
  Result<std::string> push(int64_t token);
  // Returns the text that is left.
  Result<std::string> finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string text;
  size_t images = 0;  // for vision-language models: number of images in this message
  size_t sounds = 0;  // for models that hear: number of sounds, which come before the text
  size_t videos = 0;  // for vision-language models: number of videos, which come before the text
};

// The chat template of a checkpoint. Renders chats as transformers does.
class ChatTemplate {
 public:
  static Result<ChatTemplate> load(const std::string& directory);
  static Result<ChatTemplate> of(const Bundle& bundle);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&);
  ChatTemplate& operator=(const ChatTemplate&);

  // `add_generation_prompt` ends the text where the answer begins.
  Result<std::string> render(std::span<const Message> messages,
                             bool add_generation_prompt = true) const;
  // Renders {"messages": [...], "add_generation_prompt": bool}. Other members, such as "tools",
  // become variables of the template.
  Result<std::string> render_json(std::string_view chat) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

}  // namespace v0
}  // namespace ferry
