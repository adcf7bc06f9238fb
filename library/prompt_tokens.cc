#include <algorithm>
#include <string>
#include <utility>

#include "core/utf8.h"
#include "library/generator_impl.h"
#include "prompt/messages.h"
#include "runner/generation_config.h"
#include "runner/source_encoder.h"
#include "text/tokenizer/tokenizer_files.h"

namespace ferry {
inline namespace v0 {
namespace {

using library::wrong;

Status check_prompt(const Prompt& prompt) {
  const int given = (prompt.tokens.empty() ? 0 : 1) + (prompt.text.empty() ? 0 : 1) +
                    (prompt.messages.empty() ? 0 : 1) + (prompt.chat_json.empty() ? 0 : 1);
  if (given != 1) {
    return fail(ErrorCode::kUsage,
                "a prompt has exactly one of tokens, text, messages and chat_json");
  }
  if (!prompt.tokens.empty() && !prompt.images.empty()) {
    return wrong("images", "must be empty where the prompt has tokens");
  }
  if (!prompt.tokens.empty() && !prompt.sounds.empty()) {
    return wrong("sounds", "must be empty where the prompt has tokens");
  }
  if (!prompt.tokens.empty() && !prompt.videos.empty()) {
    return wrong("videos", "must be empty where the prompt has tokens");
  }
  if (!utf8::is_valid(prompt.text)) return wrong("text", "must be UTF-8");
  return {};
}

Status refuse_images(const Prompt& prompt) {
  if (!prompt.images.empty()) return wrong("images", "must be empty: this bundle takes none");
  if (!prompt.videos.empty()) return wrong("videos", "must be empty: this bundle takes none");
  for (const Message& message : prompt.messages) {
    if (message.images > 0) return wrong("messages", "must have no images: this bundle takes none");
    if (message.videos > 0) return wrong("messages", "must have no videos: this bundle takes none");
  }
  return {};
}

Status refuse_sounds(const Prompt& prompt) {
  if (!prompt.sounds.empty()) return wrong("sounds", "must be empty: this bundle takes none");
  for (const Message& message : prompt.messages) {
    if (message.sounds > 0) return wrong("messages", "must have no sounds: this bundle takes none");
  }
  return {};
}

Result<std::vector<prompt::ChatMessage>> chat_messages(std::span<const Message> messages) {
  std::vector<prompt::ChatMessage> out;
  for (const Message& message : messages) {
    if (!utf8::is_valid(message.role) || !utf8::is_valid(message.text)) {
      return wrong("messages", "must be UTF-8");
    }
    out.push_back({message.role, message.text, message.images, message.sounds, message.videos});
  }
  return out;
}

}  // namespace

Status Generator::Impl::open_text() {
  const bool hears = prompt::SoundRows::is_in(bundle);
  if (prompt::has_processor(bundle)) {
    input = FERRY_TRY(prompt::ImageInput::open(bundle));
    return hears ? prompt::check_sound_placeholder(bundle, input->prompts()) : Status();
  }
  if (hears) {
    if (prompt::SoundRows::has_prompt_file(bundle)) {
      hearing = FERRY_TRY(prompt::SoundRows::open(bundle));
    }
    return {};
  }
  if (text::find_tokenizer_file(prompt::files_of(bundle)).empty()) return {};
  own_tokenizer =
      FERRY_TRY(text::load_tokenizer(bundle.text_directory(), prompt::reader_of(bundle)));
  return {};
}

Status Generator::Impl::open_source() {
  if (!runner::SourceEncoder::is_in(bundle)) return {};
  start_token = FERRY_TRY(runner::SourceEncoder::start_token_in(bundle));
  rules = FERRY_TRY(runner::generation_defaults(bundle)).sampling.rules;
  return {};
}

Result<std::vector<int64_t>> Generator::Impl::encode(std::string_view text, bool add_special,
                                                     const char* field) {
  if (!own_tokenizer) return wrong(field, "must be empty: this bundle has no tokenizer");
  return own_tokenizer->encode(text, add_special);
}

Result<std::vector<int64_t>> Generator::Impl::text_tokens(const Prompt& prompt) {
  FERRY_RETURN_IF_ERROR(refuse_images(prompt));
  FERRY_RETURN_IF_ERROR(refuse_sounds(prompt));
  if (!prompt.text.empty()) return encode(prompt.text, /*add_special=*/true, "text");
  const bool is_json = !prompt.chat_json.empty();
  const std::string chat =
      is_json ? prompt.chat_json
              : FERRY_TRY(library::chat_of(prompt.messages, /*add_generation_prompt=*/true));
  if (FERRY_TRY(prompt::message_beyond_text(chat, "chat")) > 0) {
    return wrong("chat_json", "must be text alone: this bundle takes no images");
  }
  if (!chat_template) {
    chat_template =
        FERRY_TRY(text::ChatTemplate::load(bundle.text_directory(), prompt::reader_of(bundle)));
  }
  // A chat template writes the special tokens itself.
  return encode(FERRY_TRY(chat_template->render(chat, "chat", text::chat::local_time())),
                /*add_special=*/false, is_json ? "chat_json" : "messages");
}

Result<prompt::ExpandedPrompt> Generator::Impl::processor_tokens(const Prompt& prompt,
                                                                 ThreadPool& pool) {
  const bool hears = prompt::SoundRows::is_in(bundle);
  FERRY_RETURN_IF_ERROR(hears ? encode_sounds(prompt, pool) : refuse_sounds(prompt));
  const bool sees = !prompt.images.empty() || !prompt.videos.empty();
  if (sees && !input->has_encoder()) {
    FERRY_RETURN_IF_ERROR(input->load_encoder(pool, method));
  }
  std::vector<prompt::EncodedImage> encoded;
  if (!prompt.images.empty()) encoded = FERRY_TRY(input->encode(prompt.images));
  images = std::move(encoded);
  std::vector<prompt::EncodedVideo> frames;
  for (const Video& video : prompt.videos) {
    frames.push_back(FERRY_TRY(input->encode_video(video.path, video.fps)));
  }
  videos = std::move(frames);
  const std::vector<prompt::ImageLayout> layouts = prompt::layouts_of(images);
  const std::vector<prompt::VideoLayout> films = prompt::layouts_of(videos);
  const std::vector<int64_t> rows = FERRY_TRY(prompt::row_counts(sounds));
  if (!prompt.text.empty()) {
    return input->prompts().plain(prompt.text, "text", layouts, rows, films);
  }
  std::string chat = prompt.chat_json;
  if (chat.empty()) {
    chat = input->prompts().chat_of(FERRY_TRY(chat_messages(prompt.messages)));
  }
  return input->prompts().chat(chat, "chat", text::chat::local_time(), layouts, rows, films);
}

Status Generator::Impl::encode_sounds(const Prompt& prompt, ThreadPool& pool) {
  // Without the file of its prompts a bundle with those of mistral-common says so here.
  if (!hearing) hearing = FERRY_TRY(prompt::SoundRows::open(bundle));
  if (!prompt.sounds.empty() && !hearing->has_encoder()) {
    FERRY_RETURN_IF_ERROR(hearing->load_encoder(pool, method));
  }
  std::vector<prompt::EncodedSound> encoded;
  for (const Sound& sound : prompt.sounds) {
    const media::Sound samples = FERRY_TRY(library::read_sound(sound, "sounds"));
    FERRY_TRY(hearing->add(samples.samples, samples.rate, encoded));
  }
  sounds = std::move(encoded);
  return {};
}

Result<prompt::SoundTokens> Generator::Impl::sound_tokens(const Prompt& prompt, ThreadPool& pool) {
  FERRY_RETURN_IF_ERROR(refuse_images(prompt));
  FERRY_RETURN_IF_ERROR(encode_sounds(prompt, pool));
  const std::vector<int64_t> rows = FERRY_TRY(prompt::row_counts(sounds));
  if (!prompt.text.empty()) return hearing->prompts().plain(prompt.text, rows, "text");
  if (!prompt.chat_json.empty()) {
    const auto messages = FERRY_TRY(prompt::sound_messages(prompt.chat_json, "chat_json"));
    return hearing->prompts().chat(messages, rows, "chat_json");
  }
  const auto messages = prompt::sound_messages(FERRY_TRY(chat_messages(prompt.messages)));
  return hearing->prompts().chat(messages, rows, "messages");
}

Result<std::vector<int64_t>> Generator::Impl::tokens_of(const Prompt& prompt, ThreadPool& pool,
                                                        std::vector<runner::EmbeddingRows>& rows) {
  if (!input && !prompt::SoundRows::is_in(bundle)) return text_tokens(prompt);
  if (has_rows) begin();  // ends the decoder's views of images and sounds
  FERRY_RETURN_IF_ERROR(decoder->set_image_rows({}));
  if (input) {
    prompt::ExpandedPrompt expanded = FERRY_TRY(processor_tokens(prompt, pool));
    rows = prompt::rows_of(expanded, images, sounds, videos);
    return std::move(expanded.ids);
  }
  prompt::SoundTokens tokens = FERRY_TRY(sound_tokens(prompt, pool));
  rows = prompt::rows_of(tokens, sounds);
  return std::move(tokens.ids);
}

Result<int64_t> Generator::Impl::encode_source(const Prompt& prompt) {
  FERRY_RETURN_IF_ERROR(check_prompt(prompt));
  if (!prompt.messages.empty() || !prompt.chat_json.empty()) {
    return wrong(prompt.messages.empty() ? "chat_json" : "messages",
                 "must be empty: an encoder-decoder answers texts");
  }
  const std::vector<int64_t> tokens =
      prompt.tokens.empty() ? FERRY_TRY(text_tokens(prompt)) : prompt.tokens;
  begin();
  FERRY_RETURN_IF_ERROR(decoder->set_source(tokens));
  return std::ssize(tokens);
}

Result<std::vector<int64_t>> Generator::Impl::prepare(const Prompt& prompt, ThreadPool& pool) {
  FERRY_RETURN_IF_ERROR(check_prompt(prompt));
  std::vector<runner::EmbeddingRows> rows;
  std::vector<int64_t> tokens =
      prompt.tokens.empty() ? FERRY_TRY(tokens_of(prompt, pool, rows)) : prompt.tokens;
  if (tokens.empty()) return fail(ErrorCode::kUsage, "the prompt has no tokens");
  const bool extends = executed.size() < tokens.size() && !has_rows && rows.empty() &&
                       std::ranges::equal(executed, std::span(tokens).first(executed.size()));
  if (!extends) {
    begin();
    decoder->restart(std::ssize(tokens));
  }
  if (!rows.empty()) FERRY_RETURN_IF_ERROR(decoder->set_image_rows(rows));
  has_rows = !rows.empty();
  return tokens;
}

}  // namespace v0
}  // namespace ferry
