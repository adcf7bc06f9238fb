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
  // The template of a bundle or a checkpoint: chat_template.jinja, otherwise `chat_template` of
  // tokenizer_config.json, which is a string or a list of {name, template}; of a list the one named
  // "default" counts, and for chats with tools the one named "tool_use". kBadInput where there is
  // none. The special tokens are those of tokenizer_config.json; unless this has
  // added_tokens_decoder, those of special_tokens_map.json go before them.
  static Result<ChatTemplate> load(const std::string& directory);
  // As above, with the files that `read` returns.
  static Result<ChatTemplate> load(const std::string& directory, const ReadFile& read);
  // `config` is the text of a tokenizer_config.json. `jinja`, unless empty, is used instead of the
  // config's template. `name` begins the messages.
  static Result<ChatTemplate> parse(std::string_view config, std::string_view jinja,
                                    const std::string& name);

  // `chat` is one JSON value: {"messages": [...], "add_generation_prompt": bool} with further
  // members as further variables ("tools", "enable_thinking"), or the messages alone. Messages
  // about the chat begin with `where`.
  Result<std::string> render(std::string_view chat, const std::string& where,
                             const chat::TimeText& time) const;
  // Renders a chat of one user message, with the prompt for an answer.
  Result<std::string> render_message(const std::string& text, const chat::TimeText& time) const;

 private:
  struct Source {
    std::string name;  // "default"
    std::shared_ptr<const chat::Body> body;
  };
  Status add(std::string name, std::string_view source);
  Status take_map(std::string_view config, std::string_view map, const std::string& name);
  Result<const Source*> choose(const chat::Names& variables) const;
  Result<std::string> render(chat::Names variables, const chat::TimeText& time) const;

  std::string file_;
  std::vector<Source> sources_;
  chat::Names tokens_;  // bos_token and the like
};

}  // namespace ferry::text
