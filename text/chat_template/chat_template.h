// ChatTemplate: the checkpoint's chat template, rendered as transformers renders it (Jinja 3.1 with
// trim_blocks and lstrip_blocks, in its sandbox). Templates are untrusted: they see only the chat,
// the special tokens and the date. Work, output and nesting are bounded. Unsupported constructs are
// refused by name and line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/result.h"
#include "text/chat_template/evaluator.h"
#include "text/read_file.h"

namespace ferry::text {

inline constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";
inline constexpr const char* kSpecialTokensMapFile = "special_tokens_map.json";
inline constexpr const char* kChatTemplateFile = "chat_template.jinja";
inline constexpr uint64_t kMaxTokenizerConfigBytes = uint64_t{64} << 20;

class ChatTemplate {
 public:
  // Reads the template of a bundle or a checkpoint: chat_template.jinja, otherwise `chat_template`
  // of tokenizer_config.json. The latter is a string or a list of {name, template}. In a list the
  // template named "default" counts, and for chats with tools the one named "tool_use". kBadInput
  // if there is no template. Special tokens are read from tokenizer_config.json. If that file has
  // no added_tokens_decoder, special_tokens_map.json takes precedence over it.
  static Result<ChatTemplate> load(const std::string& directory);
  // Like load(directory), but the files are those that `read` returns.
  static Result<ChatTemplate> load(const std::string& directory, const ReadFile& read);
  // `config` is the text of a tokenizer_config.json. If `jinja` is not empty, it replaces the
  // template of `config`. `name` begins error messages.
  static Result<ChatTemplate> parse(std::string_view config, std::string_view jinja,
                                    const std::string& name);

  // `chat` is one JSON value: {"messages": [...], "add_generation_prompt": bool} with further
  // members as further variables ("tools", "enable_thinking"), or the array of messages. Error
  // messages about the chat begin with `where`.
  Result<std::string> render(std::string_view chat, const std::string& where,
                             const chat::TimeText& time) const;
  // Renders a chat of one user message, followed by the generation prompt.
  Result<std::string> render_message(const std::string& text, const chat::TimeText& time) const;

 private:
  struct Source {
    std::string name;  // such as "default"
    std::shared_ptr<const chat::Body> body;
  };
  Status add(std::string name, std::string_view source);
  Status take_map(std::string_view config, std::string_view map, const std::string& name);
  Result<const Source*> choose(const chat::Names& variables) const;
  Result<std::string> render(chat::Names variables, const chat::TimeText& time) const;

  std::string file_;
  std::vector<Source> sources_;
  chat::Names tokens_;  // bos_token, eos_token and the other named tokens
};

}  // namespace ferry::text
