// ImagePrompt: prompts with images to token ids, as the processor of a vision-language checkpoint
// makes them: SmolVLM and Idefics3 (Idefics3Processor, SmolVLMProcessor) and InternVL
// (InternVLProcessor) of transformers 5.12.1. A prompt has one placeholder for each image. It is
// replaced by a run of placeholders for each tile of the image; the features that the vision
// encoder makes of the tile take the place of the embeddings of that run.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "prompt/expand.h"
#include "prompt/image_processor.h"
#include "text/chat_template/chat_template.h"
#include "text/read_file.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::prompt {

struct ExpandedPrompt {
  std::string rendered;  // with one placeholder for each image
  std::string text;      // with all of them
  std::vector<int64_t> ids;
  // images[i][t]: the position in `ids` of the first of the tokens_per_tile() placeholders of tile
  // t of image i. Tiles are in the order of the pixel values.
  std::vector<std::vector<int64_t>> images;
};

// A message of a chat: images, then text.
struct ChatMessage {
  std::string role;  // "user", "assistant"
  std::string text;  // UTF-8
  size_t images = 0;
};

// Not thread-safe, because its tokenizer is not.
class ImagePrompt {
 public:
  // Opens the files of a checkpoint: tokenizer.json, tokenizer_config.json, the processor files
  // and, if there is one, the chat template. kBadInput where it has no processor; kUnsupported, by
  // name, for classes, fields and templates that are not known.
  static Result<ImagePrompt> open(const std::string& directory);
  // Opens the files that `read` returns, as those of a bundle. `directory` begins the messages.
  static Result<ImagePrompt> open(const std::string& directory, const text::ReadFile& read);

  // `chat` is JSON as ChatTemplate::render() takes it. The content of a message is a string or a
  // list of {"type": "text", "text": ...} and {"type": "image"}; `images` are those of the whole
  // chat, in order. Messages begin with `where`. kBadInput for wrong numbers of images; for a
  // string where the template leaves strings out, which the reference accepts; and where a token is
  // missing. kUnsupported for other types of content.
  Result<ExpandedPrompt> chat(std::string_view chat, const std::string& where,
                              const text::chat::TimeText& time,
                              std::span<const ImageLayout> images);
  // Without a template. If `prompt` has no placeholder, the images come before it.
  Result<ExpandedPrompt> plain(std::string_view prompt, const std::string& where,
                               std::span<const ImageLayout> images);
  // The messages with the prompt for an answer, for chat(). If the text of one has placeholders,
  // its images are there.
  std::string chat_of(std::span<const ChatMessage> messages) const;
  // A chat of one user message.
  std::string user_message(std::string_view text, size_t images) const;

  int64_t tokens_per_tile() const { return processor_.tokens_per_tile; }
  int64_t placeholder_id() const { return placeholder_id_; }
  // kBadInput unless a vision encoder that makes `tokens` of a tile belongs to this processor.
  Status expect_tokens_per_tile(int64_t tokens) const;
  text::Tokenizer& tokenizer() { return tokenizer_; }

 private:
  ImagePrompt(std::string directory, ImageProcessor processor, text::Tokenizer tokenizer);
  Status check_marks(std::span<const ImageLayout> images) const;
  Status check_strings(const std::string& where, const text::chat::TimeText& time) const;
  Result<ExpandedPrompt> encode(std::string rendered, bool add_special, const std::string& where,
                                std::span<const ImageLayout> images);
  Result<std::vector<std::vector<int64_t>>> find_tiles(std::span<const int64_t> ids,
                                                       std::span<const ImageLayout> images,
                                                       const std::string& where) const;

  std::string directory_;
  ImageProcessor processor_;
  text::Tokenizer tokenizer_;
  int64_t placeholder_id_ = 0;
  std::optional<text::ChatTemplate> template_;
};

}  // namespace ferry::prompt
