// PromptReader: prompts of `ferry run` as the decoder takes them.
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
#include "runner/method.h"
#include "runner/token_embedder.h"
#include "text/chat_template/chat_template.h"
#include "text/chat_template/evaluator.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::cli {

// Ids, and rows of images at some of their positions.
struct Prompt {
  std::vector<int64_t> ids;
  std::vector<runner::EmbeddingRows> rows;  // views of the images of the reader
};

inline constexpr std::string_view kTokensExpected = "ids such as 1,2,3";
// --tokens N,N,... and the like; kUsage for what is not `expected`.
Result<std::vector<int64_t>> parse_numbers(std::string_view option, std::string_view text,
                                           std::string_view expected);

// Reads what stands for a text: `-` in --prompt and --chat, which is all of standard input, and
// --prompt-file, which becomes --prompt. The line end behind the last line is left out.
Status read_prompt_texts(RunOptions& options);

class PromptReader {
 public:
  // Opens what the prompts of these options need of the bundle; with images the vision encoder too.
  // `pool` must outlive this. kUsage for text where the bundle has no tokenizer, and for images
  // where it takes none.
  static Result<PromptReader> open(const packer::Bundle& bundle, const RunOptions& options,
                                   ThreadPool& pool, const runner::MethodOptions& method);

  // The tokenizer of prompts and answers; nullptr with --tokens.
  text::Tokenizer* tokenizer();

  // kUsage, or why the bundle's processor is none, where it takes no images.
  Status load_encoder();
  // After load_encoder(): the next image. Its features stay as long as the reader.
  Status add_image(const std::string& path);
  size_t images() const { return images_.size(); }

  // --tokens, --prompt, --messages, or --system and --chat, with --image.
  Result<Prompt> read(const RunOptions& options);
  // The prompt for an answer to the last of these messages, with all images. Messages about it
  // begin with `where`.
  Result<Prompt> messages(std::span<const prompt::ChatMessage> messages, const std::string& where);

 private:
  PromptReader(packer::Bundle bundle, ThreadPool& pool, const runner::MethodOptions& method);
  Status open_tokenizer(const RunOptions& options);
  Result<Prompt> plain(const std::string& text, const std::string& where);
  Result<Prompt> chat(std::string_view chat, const std::string& where);
  Result<Prompt> encode(std::string_view text, bool add_special, const std::string& where);
  Result<Prompt> with_rows(prompt::ExpandedPrompt expanded, const std::string& where) const;

  packer::Bundle bundle_;
  ThreadPool* pool_;
  runner::MethodOptions method_;
  text::chat::TimeText time_;  // one for all turns of a chat
  // The first one is set for a bundle that takes images, the two others for any other bundle.
  std::optional<prompt::ImageInput> input_;
  std::optional<text::Tokenizer> tokenizer_;
  std::optional<text::ChatTemplate> template_;
  std::vector<prompt::EncodedImage> images_;
};

}  // namespace ferry::cli
