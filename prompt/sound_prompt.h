// SoundPrompt makes token ids of prompts with sounds, as VoxtralProcessor does with the tokenizer
// and the requests of mistral-common (tekken.json). A sound is a mark and a run of placeholders,
// one for each row that the audio encoder makes. Control tokens within texts are plain text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "prompt/image_prompt.h"
#include "text/read_file.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::prompt {

// A message of a chat: texts, and sounds (nullopt) in order.
struct SoundMessage {
  std::string role;  // "system", "user" or "assistant"
  std::vector<std::optional<std::string>> parts;
};

struct SoundTokens {
  std::vector<int64_t> ids;
  std::vector<int64_t> sounds;  // the position of the first placeholder of each sound
};

// SoundPrompt is not thread-safe, because its tokenizer is not.
class SoundPrompt {
 public:
  static constexpr const char* kFile = "tekken.json";
  // Opens the tekken.json that `read` returns. `placeholder` is that of the model. kUnsupported if
  // there is no such file; kBadInput if it has not the tokens and sizes of a model that makes
  // `rows` rows of a window of `samples` samples.
  static Result<SoundPrompt> open(const std::string& directory, const text::ReadFile& read,
                                  int64_t placeholder, int64_t rows, int64_t samples);

  // Makes the prompt for an answer to the last of the messages. `rows` are those of each sound of
  // the chat, in order. Messages begin with `where`. kBadInput unless there are as many sounds as
  // the messages have, and for messages in another order than user, assistant, ..., user, before
  // which a system message may stand; kUnsupported for a system message beside sounds, which the
  // reference refuses too.
  Result<SoundTokens> chat(std::span<const SoundMessage> messages, std::span<const int64_t> rows,
                           const std::string& where);
  // Makes a prompt without control tokens of a chat: the sounds, then the text.
  Result<SoundTokens> plain(std::string_view text, std::span<const int64_t> rows,
                            const std::string& where);
  // Makes the request to write down a sound of so many rows. `language` is such as "en".
  Result<SoundTokens> transcription(int64_t rows, const std::optional<std::string>& language);

  text::Tokenizer& tokenizer() { return tokenizer_; }

 private:
  SoundPrompt(std::string directory, text::Tokenizer tokenizer)
      : directory_(std::move(directory)), tokenizer_(std::move(tokenizer)) {}
  Result<int64_t> control(std::string_view token) const;
  Status add_text(std::string_view text, const std::string& where, std::vector<int64_t>& ids);
  void add_sound(int64_t rows, SoundTokens& out) const;

  std::string directory_;
  text::Tokenizer tokenizer_;
  int64_t begin_ = 0, end_ = 0;                  // of a text
  int64_t begin_message_ = 0, end_message_ = 0;  // of a user's message
  int64_t begin_system_ = 0, end_system_ = 0;
  int64_t begin_sound_ = 0, sound_ = 0, transcribe_ = 0;
};

// Returns the messages, each with its sounds before its text.
std::vector<SoundMessage> sound_messages(std::span<const ChatMessage> messages);
// Reads the messages of a chat, JSON {"messages": [...]} or a list. The content of a message is a
// string or a list of {"type": "text", "text": ...} and {"type": "audio"}; sounds are given beside
// the chat. kBadInput for malformed content, kUnsupported, by name, for other types and fields.
Result<std::vector<SoundMessage>> sound_messages(std::string_view json, const std::string& where);

}  // namespace ferry::prompt
