#include "cli/run_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <iterator>
#include <utility>

#include "cli/line_reader.h"
#include "cli/run_prompts.h"
#include "core/file.h"
#include "core/json_writer.h"
#include "core/text.h"
#include "core/utf8.h"
#include "prompt/messages.h"
#include "runner/source_encoder.h"
#include "runner/vision_encoder.h"
#include "text/chat_template/value.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry::cli {
namespace {

constexpr uint64_t kMaxMessagesBytes = uint64_t{16} << 20;
constexpr uint64_t kMaxPromptBytes = uint64_t{16} << 20;
constexpr std::string_view kStandardInput = "-";

// Writes messages for templates without images, which expect strings as contents.
std::string chat_of(std::span<const prompt::ChatMessage> messages) {
  JsonWriter json;
  json.begin_object().key("messages").begin_array();
  for (const prompt::ChatMessage& message : messages) {
    json.begin_object().member("role", message.role).member("content", message.text).end_object();
  }
  json.end_array().member("add_generation_prompt", true);
  return json.end_object().take();
}

// A list of messages without an object around it asks for an answer to its last message.
Result<std::string> with_answer(const std::string& chat, const std::string& where) {
  using text::chat::Value;
  const Value value = FERRY_TRY(text::chat::parse_json_value(chat, where));
  if (!value.is<Value::ListPtr>()) return chat;
  return "{\"messages\": " + chat + ", \"add_generation_prompt\": true}";
}

// Refuses contents that are no text, because templates without images would drop them or write them
// as text.
Status expect_text(std::string_view chat, const std::string& where) {
  const size_t message = FERRY_TRY(prompt::message_beyond_text(chat, where));
  if (message == 0) return {};
  return fail(ErrorCode::kUsage,
              fmt::format("{}: message {} has content that is no text, which needs a bundle with a "
                          "vision encoder and the files of its processor",
                          where, message));
}

Result<Prompt> expect_tokens(Prompt prompt, const std::string& where) {
  if (prompt.ids.empty()) return fail(ErrorCode::kUsage, where + ": no tokens");
  return prompt;
}

// Opens the reader of images if images are given, or if the prompt is text and the bundle has a
// vision encoder with its processor, which makes the tokens then.
Result<std::optional<prompt::ImageInput>> open_image_input(const packer::Bundle& bundle,
                                                           const RunOptions& options) {
  const bool given = !options.images.empty() || !options.videos.empty();
  if (!given && (!prompt::has_processor(bundle) || !options.tokens.empty())) {
    return std::optional<prompt::ImageInput>();
  }
  return std::optional(FERRY_TRY(prompt::ImageInput::open(bundle)));
}

}  // namespace

Result<std::vector<int64_t>> parse_numbers(std::string_view option, std::string_view text,
                                           std::string_view expected) {
  std::vector<int64_t> numbers;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    int64_t number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    if (error != std::errc() || (rest != end && *rest != ',')) {
      return fail(ErrorCode::kUsage,
                  fmt::format("{} {}: expected {}", option, quoted(text), expected));
    }
    numbers.push_back(number);
    if (rest == end) return numbers;
    at = rest + 1;
  }
}

Status read_prompt_texts(RunOptions& options) {
  const auto without_line_end = [](std::string text) {
    if (text.ends_with('\n')) text.pop_back();
    if (text.ends_with('\r')) text.pop_back();
    return text;
  };
  for (std::string* text : {&options.prompt, &options.chat}) {
    if (*text != kStandardInput) continue;
    *text = without_line_end(FERRY_TRY(LineReader().rest(kMaxPromptBytes)));
    if (text->empty()) return fail(ErrorCode::kUsage, "standard input: the prompt is empty");
  }
  if (options.prompt_file.empty()) return {};
  options.prompt =
      without_line_end(FERRY_TRY(read_text_file(options.prompt_file, kMaxPromptBytes)));
  if (!options.prompt.empty()) return {};
  return fail(ErrorCode::kUsage,
              fmt::format("{}: the prompt is empty", printable(options.prompt_file)));
}

PromptReader::PromptReader(packer::Bundle bundle, ThreadPool& pool,
                           const runner::MethodOptions& method)
    : bundle_(std::move(bundle)), pool_(&pool), method_(method), time_(text::chat::local_time()) {}

namespace {

// An encoder-decoder answers one text, which its encoder reads whole.
Status check_source_prompt(const packer::Bundle& bundle, const RunOptions& options) {
  if (!runner::SourceEncoder::is_in(bundle)) return {};
  const std::pair<const char*, bool> others[] = {{"--chat", !options.chat.empty()},
                                                 {"--messages", !options.messages.empty()},
                                                 {"--interactive", options.interactive},
                                                 {"--parallel", options.parallel.has_value()},
                                                 {"--save-state", !options.save_state.empty()},
                                                 {"--load-state", !options.load_state.empty()}};
  for (const auto& [name, is_given] : others) {
    if (!is_given) continue;
    return fail(ErrorCode::kUsage, fmt::format("{}: an encoder-decoder does not take {}",
                                               printable(bundle.path()), name));
  }
  return {};
}

}  // namespace

Result<PromptReader> PromptReader::open(const packer::Bundle& bundle, const RunOptions& options,
                                        ThreadPool& pool, const runner::MethodOptions& method) {
  FERRY_RETURN_IF_ERROR(check_source_prompt(bundle, options));
  PromptReader reader(bundle, pool, method);
  reader.pan_and_scan_ = options.pan_and_scan;
  reader.input_ = FERRY_TRY(open_image_input(bundle, options));
  if (options.pan_and_scan && !reader.input_) {
    return fail(ErrorCode::kUsage, "--pan-and-scan is for prompts with images");
  }
  if (!options.images.empty() || !options.videos.empty()) {
    FERRY_RETURN_IF_ERROR(reader.load_encoder());
  }
  FERRY_RETURN_IF_ERROR(reader.open_sounds(options));
  if (!reader.input_ && !reader.hearing_ && options.tokens.empty()) {
    FERRY_RETURN_IF_ERROR(reader.open_tokenizer(options));
  }
  return reader;
}

// A bundle that takes sounds makes the tokens of all prompts as its processor does, or as
// mistral-common.
Status PromptReader::open_sounds(const RunOptions& options) {
  if (options.sounds.empty() && (!prompt::SoundRows::is_in(bundle_) || !options.tokens.empty())) {
    return {};
  }
  hearing_ = FERRY_TRY(prompt::SoundRows::open(bundle_));
  if (hearing_->has_prompts()) return {};
  if (!input_) input_ = FERRY_TRY(prompt::ImageInput::open(bundle_));
  return prompt::check_sound_placeholder(bundle_, input_->prompts());
}

Status PromptReader::open_tokenizer(const RunOptions& options) {
  if (text::find_tokenizer_file(prompt::files_of(bundle_)).empty()) {
    return fail(
        ErrorCode::kUsage,
        bundle_.text_directory().empty()
            ? fmt::format("{}: a prompt of text needs --tokenizer", printable(bundle_.path()))
            : fmt::format("{}: this bundle has no {}: use --tokens",
                          printable(bundle_.text_directory()), text::kTokenizerFile));
  }
  tokenizer_ =
      FERRY_TRY(text::load_tokenizer(bundle_.text_directory(), prompt::reader_of(bundle_)));
  if (!options.prompt.empty()) return {};
  template_ =
      FERRY_TRY(text::ChatTemplate::load(bundle_.text_directory(), prompt::reader_of(bundle_)));
  return {};
}

text::Tokenizer* PromptReader::tokenizer() {
  if (input_) return &input_->prompts().tokenizer();
  if (has_sound_prompts()) return &hearing_->prompts().tokenizer();
  return tokenizer_ ? &*tokenizer_ : nullptr;
}

Status PromptReader::load_encoder() {
  if (!input_) input_ = FERRY_TRY(prompt::ImageInput::open(bundle_));
  return input_->has_encoder() ? Status() : input_->load_encoder(*pool_, method_, pan_and_scan_);
}

Result<bool> PromptReader::add_sound(const std::string& path) {
  if (!hearing_) hearing_ = FERRY_TRY(prompt::SoundRows::open(bundle_));
  if (!hearing_->has_encoder()) FERRY_RETURN_IF_ERROR(hearing_->load_encoder(*pool_, method_));
  return hearing_->add(path, sounds_);
}

Status PromptReader::add_video(const std::string& path, std::optional<double> rate) {
  videos_.push_back(FERRY_TRY(input_->encode_video(path, rate)));
  return {};
}

std::string PromptReader::cut_note(size_t sound) const {
  const prompt::EncodedSound& one = sounds_[sound];
  if (one.heard == one.seconds) return "";
  return fmt::format(
      "the feature extractor takes the first {:.0f} of the {:.1f} seconds of sound {}", one.heard,
      one.seconds, sound + 1);
}

Result<Prompt> PromptReader::with_sounds(prompt::SoundTokens tokens,
                                         const std::string& where) const {
  Prompt prompt;
  prompt.rows = prompt::rows_of(tokens, sounds_);
  prompt.ids = std::move(tokens.ids);
  return expect_tokens(std::move(prompt), where);
}

Result<Prompt> PromptReader::heard(std::span<const prompt::SoundMessage> messages,
                                   const std::string& where) {
  const std::vector<int64_t> rows = FERRY_TRY(prompt::row_counts(sounds_));
  return with_sounds(FERRY_TRY(hearing_->prompts().chat(messages, rows, where)), where);
}

Result<bool> PromptReader::add_image(const std::string& path) { return input_->add(path, images_); }

Result<Prompt> PromptReader::with_rows(prompt::ExpandedPrompt expanded,
                                       const std::string& where) const {
  Prompt prompt;
  prompt.rows = prompt::rows_of(expanded, images_, sounds_, videos_);
  prompt.ids = std::move(expanded.ids);
  return expect_tokens(std::move(prompt), where);
}

// `add_special`: the post-processor adds special tokens. Templates write special tokens themselves.
Result<Prompt> PromptReader::encode(std::string_view text, bool add_special,
                                    const std::string& where) {
  auto ids = tokenizer_->encode(text, add_special);
  if (!ids) return fail(ErrorCode::kUsage, fmt::format("{}: {}", where, ids.error().message));
  return expect_tokens({std::move(*ids), {}}, where);
}

Result<Prompt> PromptReader::plain(const std::string& text, const std::string& where) {
  const std::vector<int64_t> rows = FERRY_TRY(prompt::row_counts(sounds_));
  if (has_sound_prompts()) {
    return with_sounds(FERRY_TRY(hearing_->prompts().plain(text, rows, where)), where);
  }
  if (!input_) return encode(text, /*add_special=*/true, where);
  const auto layouts = prompt::layouts_of(images_);
  const auto videos = prompt::layouts_of(videos_);
  return with_rows(FERRY_TRY(input_->prompts().plain(text, where, layouts, rows, videos)), where);
}

Result<Prompt> PromptReader::chat(std::string_view chat, const std::string& where) {
  if (has_sound_prompts()) {
    return heard(FERRY_TRY(prompt::sound_messages(chat, where)), where);
  }
  if (input_) {
    const auto layouts = prompt::layouts_of(images_);
    const std::vector<int64_t> rows = FERRY_TRY(prompt::row_counts(sounds_));
    const auto videos = prompt::layouts_of(videos_);
    return with_rows(FERRY_TRY(input_->prompts().chat(chat, where, time_, layouts, rows, videos)),
                     where);
  }
  FERRY_RETURN_IF_ERROR(expect_text(chat, where));
  return encode(FERRY_TRY(template_->render(chat, where, time_)), /*add_special=*/false, where);
}

Result<Prompt> PromptReader::messages(std::span<const prompt::ChatMessage> messages,
                                      const std::string& where) {
  if (has_sound_prompts()) return heard(prompt::sound_messages(messages), where);
  return chat(input_ ? input_->prompts().chat_of(messages) : chat_of(messages), where);
}

Result<Prompt> PromptReader::placed(Prompt prompt) const {
  if (!runner::SourceEncoder::is_in(bundle_)) return prompt;
  const int64_t start = FERRY_TRY(runner::SourceEncoder::start_token_in(bundle_));
  prompt.source = std::exchange(prompt.ids, {start});
  return prompt;
}

Result<Prompt> PromptReader::read(const RunOptions& options) {
  return placed(FERRY_TRY(read_plain(options)));
}

Result<Prompt> PromptReader::read_plain(const RunOptions& options) {
  if (!options.tokens.empty()) {
    return Prompt{FERRY_TRY(parse_numbers("--tokens", options.tokens, kTokensExpected)), {}};
  }
  if (!options.images.empty()) images_ = FERRY_TRY(input_->encode(options.images));
  for (const std::string& path : options.sounds) FERRY_TRY(add_sound(path));
  for (const std::string& path : options.videos) {
    FERRY_RETURN_IF_ERROR(add_video(path, options.video_fps));
  }
  if (!options.messages.empty()) {
    const bool is_input = options.messages == kStandardInput;
    const std::string text = is_input
                                 ? FERRY_TRY(LineReader().rest(kMaxMessagesBytes))
                                 : FERRY_TRY(read_text_file(options.messages, kMaxMessagesBytes));
    const std::string where = is_input ? "standard input" : printable(options.messages);
    return chat(FERRY_TRY(with_answer(text, where)), where);
  }
  if (!options.prompt.empty()) return plain(options.prompt, "--prompt");
  return one_message(options.system, options.chat, "--chat");
}

Result<Prompt> PromptReader::one_message(const std::string& system, const std::string& text,
                                         const std::string& where) {
  std::vector<prompt::ChatMessage> chat;
  if (!system.empty()) chat.push_back({"system", system});
  chat.push_back({"user", text, images_.size(), sounds_.size(), videos_.size()});
  return messages(chat, where);
}

Result<Prompt> PromptReader::read(const PromptLine& line, const std::string& system,
                                  const std::string& where) {
  switch (line.kind) {
    case PromptLine::Kind::kText:
      return placed(FERRY_TRY(plain(line.text, where)));
    case PromptLine::Kind::kChat:
      return one_message(system, line.text, where);
    case PromptLine::Kind::kMessages:
      return chat(FERRY_TRY(with_answer(line.text, where)), where);
    case PromptLine::Kind::kTokens:
      break;
  }
  return placed({line.tokens, {}});
}

}  // namespace ferry::cli
