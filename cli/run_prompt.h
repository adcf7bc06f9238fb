// A PromptReader turns the prompts of `ferry run` into ids and rows for the decoder.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/run_options.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "packer/bundle_reader.h"
#include "prompt/image_input.h"
#include "prompt/image_prompt.h"
#include "prompt/sound_rows.h"
#include "runner/method.h"
#include "runner/token_embedder.h"
#include "text/chat_template/chat_template.h"
#include "text/chat_template/evaluator.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::cli {

struct PromptLine;  // cli/run_prompts.h

// Token ids, and embedding rows of images, videos or sounds at the positions of some ids.
struct Prompt {
  std::vector<int64_t> ids;
  std::vector<runner::EmbeddingRows> rows;  // views of what the PromptReader owns
  // The tokens that the encoder of an encoder-decoder reads; `ids` are those that its answer begins
  // with. Empty for other models.
  std::vector<int64_t> source = {};
};

inline constexpr std::string_view kTokensExpected = "ids such as 1,2,3";
// Parses a list such as "1,2,3". Returns kUsage, with `option` and `expected` in the message, for
// another text.
Result<std::vector<int64_t>> parse_numbers(std::string_view option, std::string_view text,
                                           std::string_view expected);

// Replaces `-` in --prompt and --chat by the standard input, and sets --prompt from --prompt-file.
// Removes the last line end of these texts.
Status read_prompt_texts(RunOptions& options);

class PromptReader {
 public:
  // Opens the tokenizer, chat template and vision encoder, as far as these options need them.
  // `pool` must outlive the reader. Returns kUsage for text if the bundle has no tokenizer, and for
  // images if the bundle takes none.
  static Result<PromptReader> open(const packer::Bundle& bundle, const RunOptions& options,
                                   ThreadPool& pool, const runner::MethodOptions& method);

  // Returns the tokenizer of prompts and answers; nullptr with --tokens.
  text::Tokenizer* tokenizer();

  // Returns kUsage, or the error of the bundle's processor, if the bundle takes no images.
  Status load_encoder();
  // Adds the next image; requires load_encoder(). Its rows live as long as the reader, unless a
  // call returns that the image before was encoded again, which ends the life of that one's.
  Result<bool> add_image(const std::string& path);
  size_t images() const { return images_.size(); }
  // Adds the next sound. Its rows live as long as the reader, or until the next sound. Returns
  // whether those before it have other rows now.
  Result<bool> add_sound(const std::string& path);
  size_t sounds() const { return sounds_.size(); }
  // Adds the next video, a folder of frames; requires load_encoder(). Its rows live as long as the
  // reader.
  Status add_video(const std::string& path, std::optional<double> rate);
  size_t videos() const { return videos_.size(); }
  // Says what is left out of a sound that the feature extractor cuts; empty if nothing is.
  std::string cut_note(size_t sound) const;

  // Makes the prompt of --tokens, --prompt, --messages, or --system and --chat, with --image and
  // --video.
  Result<Prompt> read(const RunOptions& options);
  // Makes the prompt of a line of --prompts. `system` is the message before that of a chat of one
  // message; it may be empty.
  Result<Prompt> read(const PromptLine& line, const std::string& system, const std::string& where);
  // Makes the prompt for an answer to the last of these messages, with all added images. Error
  // messages begin with `where`.
  Result<Prompt> messages(std::span<const prompt::ChatMessage> messages, const std::string& where);

 private:
  PromptReader(packer::Bundle bundle, ThreadPool& pool, const runner::MethodOptions& method);
  Status open_tokenizer(const RunOptions& options);
  Status open_sounds(const RunOptions& options);
  // Whether prompts are those of mistral-common.
  bool has_sound_prompts() const { return hearing_ && hearing_->has_prompts(); }
  Result<Prompt> with_sounds(prompt::SoundTokens tokens, const std::string& where) const;
  Result<Prompt> heard(std::span<const prompt::SoundMessage> messages, const std::string& where);
  Result<Prompt> one_message(const std::string& system, const std::string& text,
                             const std::string& where);
  Result<Prompt> read_plain(const RunOptions& options);
  // Moves the ids of a prompt to where the model takes them.
  Result<Prompt> placed(Prompt prompt) const;
  Result<Prompt> plain(const std::string& text, const std::string& where);
  Result<Prompt> chat(std::string_view chat, const std::string& where);
  Result<Prompt> encode(std::string_view text, bool add_special, const std::string& where);
  Result<Prompt> with_rows(prompt::ExpandedPrompt expanded, const std::string& where) const;

  packer::Bundle bundle_;
  ThreadPool* pool_;
  runner::MethodOptions method_;
  bool pan_and_scan_ = false;
  text::chat::TimeText time_;  // the time of opening, in all turns of a chat
  // `input_` is set for a bundle that takes images, or sounds of its processor; `hearing_` for one
  // that takes sounds; else `tokenizer_` and `template_` are.
  std::optional<prompt::ImageInput> input_;
  std::optional<prompt::SoundRows> hearing_;
  std::optional<text::Tokenizer> tokenizer_;
  std::optional<text::ChatTemplate> template_;
  std::vector<prompt::EncodedImage> images_;
  std::vector<prompt::EncodedSound> sounds_;
  std::vector<prompt::EncodedVideo> videos_;
};

}  // namespace ferry::cli
