#include <ferry/text.h>

#include <utility>

#include "checkpoint/hub_cache.h"
#include "core/json_writer.h"
#include "core/utf8.h"
#include "library/internal.h"
#include "prompt/image_input.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry {
inline namespace v0 {

struct Tokenizer::Impl {
  text::Tokenizer tokenizer;
};
struct TokenStream::Impl {
  std::shared_ptr<Tokenizer::Impl> tokenizer;
  text::TextStream stream;
};
struct ChatTemplate::Impl {
  text::ChatTemplate chat_template;
};

namespace library {

Result<std::string> chat_of(std::span<const Message> messages, bool add_generation_prompt) {
  JsonWriter json;
  json.begin_object().key("messages").begin_array();
  for (const Message& message : messages) {
    if (!utf8::is_valid(message.role) || !utf8::is_valid(message.text)) {
      return wrong("messages", "must be UTF-8");
    }
    json.begin_object().member("role", message.role).member("content", message.text).end_object();
  }
  json.end_array().member("add_generation_prompt", add_generation_prompt);
  return json.end_object().take();
}

}  // namespace library

Tokenizer::Tokenizer(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Result<Tokenizer> Tokenizer::load(const std::string& path) {
  const std::string found = FERRY_TRY(checkpoint::find_source(path));
  return Tokenizer(std::make_shared<Impl>(Impl{FERRY_TRY(text::load_tokenizer(found))}));
}

Result<Tokenizer> Tokenizer::of(const Bundle& bundle) {
  const packer::Bundle& files = bundle.impl().bundle;
  return Tokenizer(std::make_shared<Impl>(
      Impl{FERRY_TRY(text::load_tokenizer(files.text_directory(), prompt::reader_of(files)))}));
}

Result<std::vector<int64_t>> Tokenizer::encode(std::string_view text, bool add_special) {
  return impl_->tokenizer.encode(text, add_special);
}
Result<std::string> Tokenizer::decode(std::span<const int64_t> tokens, bool skip_special) const {
  return impl_->tokenizer.decode(tokens, skip_special);
}
std::optional<int64_t> Tokenizer::find(std::string_view token) const {
  return impl_->tokenizer.find(token);
}
int64_t Tokenizer::id_bound() const { return impl_->tokenizer.id_bound(); }

TokenStream::TokenStream(const Tokenizer& tokenizer)
    : impl_(std::make_unique<Impl>(
          Impl{tokenizer.impl(), text::TextStream(tokenizer.impl()->tokenizer)})) {}
TokenStream::~TokenStream() = default;
TokenStream::TokenStream(TokenStream&&) noexcept = default;
TokenStream& TokenStream::operator=(TokenStream&&) noexcept = default;
Result<std::string> TokenStream::push(int64_t token) { return impl_->stream.push(token); }
Result<std::string> TokenStream::finish() { return impl_->stream.finish(); }

ChatTemplate::ChatTemplate(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(const ChatTemplate&) = default;
ChatTemplate& ChatTemplate::operator=(const ChatTemplate&) = default;

Result<ChatTemplate> ChatTemplate::load(const std::string& directory) {
  return ChatTemplate(
      std::make_shared<const Impl>(Impl{FERRY_TRY(text::ChatTemplate::load(directory))}));
}

Result<ChatTemplate> ChatTemplate::of(const Bundle& bundle) {
  const packer::Bundle& files = bundle.impl().bundle;
  return ChatTemplate(std::make_shared<const Impl>(
      Impl{FERRY_TRY(text::ChatTemplate::load(files.text_directory(), prompt::reader_of(files)))}));
}

Result<std::string> ChatTemplate::render(std::span<const Message> messages,
                                         bool add_generation_prompt) const {
  for (const Message& message : messages) {
    if (message.images > 0 || message.sounds > 0 || message.videos > 0) {
      return library::wrong("messages",
                            "must have no images, sounds and videos here: Generator takes them");
    }
  }
  return render_json(FERRY_TRY(library::chat_of(messages, add_generation_prompt)));
}

Result<std::string> ChatTemplate::render_json(std::string_view chat) const {
  return impl_->chat_template.render(chat, "chat", text::chat::local_time());
}

}  // namespace v0
}  // namespace ferry
