#include "prompt/sound_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/json.h"
#include "core/text.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::prompt {
namespace {

using nlohmann::json;

// Adjacent texts of a message are joined so, as mistral-common does it.
constexpr const char* kBetweenTexts = "\n\n";

Result<double> positive(const json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found != object.end() && found->is_number() && *found > 0 && *found <= 1e9) {
    return found->get<double>();
  }
  return bad_input(fmt::format("{}: 'audio.{}' is not a positive number", where, key));
}

// Returns a // b of Python, which is the floor of the exact quotient.
double whole_quotient(double a, double b) { return std::round((a - std::fmod(a, b)) / b); }

// Checks that the file makes windows of `samples` samples, with a placeholder for each of `rows`.
Status check_windows(const json& file, const std::string& where, int64_t rows, int64_t samples) {
  const auto audio = file.find("audio");
  if (audio == file.end() || !audio->is_object()) {
    return fail(ErrorCode::kUnsupported,
                where + ": has no 'audio', without which it takes no sound");
  }
  if (audio->contains("transcription_format") && (*audio)["transcription_format"] != "instruct") {
    return fail(ErrorCode::kUnsupported,
                where + ": 'audio.transcription_format' is not instruct: not supported");
  }
  auto encoding = audio->find("audio_encoding_config");
  if (encoding == audio->end()) encoding = audio->find("encoding_config");
  if (encoding == audio->end() || !encoding->is_object()) {
    return bad_input(where + ": 'audio.audio_encoding_config' is not an object");
  }
  const double rate = FERRY_TRY(positive(*audio, "sampling_rate", where));
  const double frame_rate = FERRY_TRY(positive(*audio, "frame_rate", where));
  const double seconds = FERRY_TRY(positive(*audio, "chunk_length_s", where));
  const double hop = FERRY_TRY(positive(*encoding, "hop_length", where));
  const double frames_of_row = std::floor(whole_quotient(rate, frame_rate) / hop);
  const double made =
      frames_of_row < 1 ? 0 : std::ceil(std::floor(rate * seconds / hop) / frames_of_row);
  if (rate * seconds == static_cast<double>(samples) && made == static_cast<double>(rows))
    return {};
  return bad_input(
      fmt::format("{}: makes {} placeholders of windows of {} samples, the model {} rows of {}",
                  where, made, rate * seconds, rows, samples));
}

// Returns the texts and sounds of the content of a message.
Result<std::vector<std::optional<std::string>>> parts_of(const json& content,
                                                         const std::string& where) {
  using Part = std::optional<std::string>;
  if (content.is_string()) return std::vector<Part>{content.get<std::string>()};
  if (!content.is_array()) return bad_input(where + ": its content is no string and no list");
  std::vector<Part> parts;
  for (const json& item : content) {
    const bool typed = item.is_object() && item.contains("type") && item["type"].is_string();
    if (!typed) return bad_input(where + ": an item has no type");
    const std::string type = item["type"];
    if (type != "text" && type != "audio") {
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: content of type {} is not supported", where, quoted(type, 40)));
    }
    const bool words = type == "text";
    for (const auto& [name, value] : item.items()) {
      if (name == "type" || (words && name == "text")) continue;
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: field {} of content of type {} is not supported{}", where,
                              quoted(name, 40), quoted(type),
                              words ? "" : "; sounds are given beside the chat, in order"));
    }
    if (words && (!item.contains("text") || !item["text"].is_string())) {
      return bad_input(where + ": has no text");
    }
    parts.push_back(words ? Part(item["text"].get<std::string>()) : std::nullopt);
  }
  return parts;
}

// Joins adjacent texts, and leaves empty ones out.
std::vector<std::optional<std::string>> joined(const SoundMessage& message) {
  std::vector<std::optional<std::string>> out;
  for (const auto& part : message.parts) {
    if (part && part->empty()) continue;
    if (part && !out.empty() && out.back()) {
      *out.back() += kBetweenTexts + *part;
    } else {
      out.push_back(part);
    }
  }
  return out;
}

int64_t sounds_in(const SoundMessage& message) {
  return std::ranges::count_if(message.parts, [](const auto& part) { return !part; });
}
bool has_sound(const SoundMessage& message) { return sounds_in(message) > 0; }

// A system message may be first. Then users and assistants take turns.
Status check_turns(std::span<const SoundMessage> messages, const std::string& where) {
  const bool system = !messages.empty() && messages.front().role == "system";
  const auto turns = messages.subspan(system ? 1 : 0);
  for (size_t i = 0; i < turns.size(); ++i) {
    const std::string place = fmt::format("{}: message {}", where, i + 1 + (system ? 1 : 0));
    const char* role = i % 2 == 0 ? "user" : "assistant";
    if (turns[i].role != role) {
      return bad_input(
          fmt::format("{} is of {}, expected {}", place, quoted(turns[i].role, 40), role));
    }
    if (i % 2 == 1 && has_sound(turns[i])) return bad_input(place + ": an assistant has no sounds");
    if (joined(turns[i]).empty()) return bad_input(place + " is empty");
  }
  if (turns.empty() || turns.size() % 2 == 0) {
    return bad_input(where + ": the last message is not a user's");
  }
  if (!system || std::ranges::none_of(messages, has_sound)) return {};
  return fail(ErrorCode::kUnsupported,
              where + ": a system message beside sounds: mistral-common does not allow it");
}

}  // namespace

Result<SoundPrompt> SoundPrompt::open(const std::string& directory, const text::ReadFile& read,
                                      int64_t placeholder, int64_t rows, int64_t samples) {
  const std::string where = printable(directory) + "/" + kFile;
  const std::string bytes = FERRY_TRY(read(kFile, text::kMaxTekkenFile));
  if (bytes.empty()) {
    return fail(
        ErrorCode::kUnsupported,
        where + ": there is no such file, and other tokenizers make no prompts with sounds");
  }
  SoundPrompt out(printable(directory), FERRY_TRY(text::tekken_tokenizer(bytes, where)));
  FERRY_RETURN_IF_ERROR(check_windows(FERRY_TRY(parse_json(bytes, where)), where, rows, samples));
  const std::pair<const char*, int64_t*> tokens[] = {
      {"<s>", &out.begin_},
      {"</s>", &out.end_},
      {"[INST]", &out.begin_message_},
      {"[/INST]", &out.end_message_},
      {"[SYSTEM_PROMPT]", &out.begin_system_},
      {"[/SYSTEM_PROMPT]", &out.end_system_},
      {"[BEGIN_AUDIO]", &out.begin_sound_},
      {"[AUDIO]", &out.sound_},
      {"[TRANSCRIBE]", &out.transcribe_},
  };
  for (const auto& [token, id] : tokens) *id = FERRY_TRY(out.control(token));
  if (out.sound_ == placeholder) return out;
  return bad_input(fmt::format("{}: [AUDIO] is token {}, the config's audio_token_id is {}", where,
                               out.sound_, placeholder));
}

Result<int64_t> SoundPrompt::control(std::string_view token) const {
  const std::optional<int64_t> id = tokenizer_.find(token);
  if (id) return *id;
  return bad_input(fmt::format("{}/{}: has no token {}", directory_, kFile, token));
}

Status SoundPrompt::add_text(std::string_view text, const std::string& where,
                             std::vector<int64_t>& ids) {
  auto encoded = tokenizer_.encode(text, /*add_special=*/false);
  if (!encoded) return fail(encoded.error().code, where + ": " + encoded.error().message);
  ids.insert(ids.end(), encoded->begin(), encoded->end());
  return {};
}

void SoundPrompt::add_sound(int64_t rows, SoundTokens& out) const {
  out.ids.push_back(begin_sound_);
  out.sounds.push_back(std::ssize(out.ids));
  out.ids.insert(out.ids.end(), static_cast<size_t>(rows), sound_);
}

Result<SoundTokens> SoundPrompt::chat(std::span<const SoundMessage> messages,
                                      std::span<const int64_t> rows, const std::string& where) {
  FERRY_RETURN_IF_ERROR(check_turns(messages, where));
  size_t sounds = 0;
  for (const SoundMessage& message : messages) {
    sounds += static_cast<size_t>(sounds_in(message));
  }
  if (sounds != rows.size()) {
    return bad_input(
        fmt::format("{}: the messages have {} sounds, {} are given", where, sounds, rows.size()));
  }
  SoundTokens out;
  out.ids.push_back(begin_);
  for (const SoundMessage& message : messages) {
    const bool user = message.role == "user", system = message.role == "system";
    if (user || system) out.ids.push_back(user ? begin_message_ : begin_system_);
    for (const auto& part : joined(message)) {
      if (!part) {
        add_sound(rows[out.sounds.size()], out);
        continue;
      }
      std::string text = *part;
      while (!user && !system && text.ends_with(' ')) text.pop_back();
      FERRY_RETURN_IF_ERROR(add_text(text, where, out.ids));
    }
    out.ids.push_back(user ? end_message_ : system ? end_system_ : end_);
  }
  return out;
}

Result<SoundTokens> SoundPrompt::plain(std::string_view text, std::span<const int64_t> rows,
                                       const std::string& where) {
  SoundTokens out;
  out.ids.push_back(begin_);
  for (const int64_t count : rows) add_sound(count, out);
  FERRY_RETURN_IF_ERROR(add_text(text, where, out.ids));
  return out;
}

Result<SoundTokens> SoundPrompt::transcription(int64_t rows,
                                               const std::optional<std::string>& language) {
  SoundTokens out;
  out.ids = {begin_, begin_message_};
  add_sound(rows, out);
  out.ids.push_back(end_message_);
  if (language) {
    const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
    if (language->size() != 2 || !std::ranges::all_of(*language, is_letter)) {
      return fail_field(ErrorCode::kUsage, "language",
                        fmt::format(" {}: expected two letters such as en", printable(*language)));
    }
    FERRY_RETURN_IF_ERROR(add_text("lang:" + *language, "language", out.ids));
  }
  out.ids.push_back(transcribe_);
  return out;
}

std::vector<SoundMessage> sound_messages(std::span<const ChatMessage> messages) {
  std::vector<SoundMessage> out;
  for (const ChatMessage& message : messages) {
    out.push_back({message.role, std::vector<std::optional<std::string>>(message.sounds)});
    out.back().parts.emplace_back(message.text);
  }
  return out;
}

Result<std::vector<SoundMessage>> sound_messages(std::string_view text, const std::string& where) {
  const json chat = FERRY_TRY(parse_json(text, where));
  const json* list = &chat;
  if (chat.is_object() && chat.contains("messages")) list = &chat["messages"];
  if (!list->is_array() || list->empty()) return bad_input(where + ": has no list of messages");
  if (chat.is_object()) {
    for (const auto& [name, value] : chat.items()) {
      if (name == "messages" || (name == "add_generation_prompt" && value == true)) continue;
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: field {} is not supported", where, quoted(name, 40)));
    }
  }
  std::vector<SoundMessage> messages;
  for (const json& message : *list) {
    const std::string place = fmt::format("{}: message {}", where, messages.size() + 1);
    const bool whole = message.is_object() && message.contains("role") &&
                       message["role"].is_string() && message.contains("content");
    if (!whole) return bad_input(place + ": has no role or no content");
    for (const auto& [name, value] : message.items()) {
      if (name == "role" || name == "content") continue;
      return fail(ErrorCode::kUnsupported,
                  fmt::format("{}: field {} is not supported", place, quoted(name, 40)));
    }
    messages.push_back({message["role"], FERRY_TRY(parts_of(message["content"], place))});
  }
  return messages;
}

}  // namespace ferry::prompt
