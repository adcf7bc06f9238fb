// ImagePrompt makes token ids of prompts with images, like the processor of a vision-language
// checkpoint: those of prompt/image_processor.cc. A prompt has one placeholder for each image,
// which is replaced by a run of placeholders for each tile of the image. The features of a tile,
// which the vision encoder computes, replace the embeddings of its run. So it is with the rows of
// sounds, where the processor takes sounds too (Gemma3n, Gemma4).
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
#include "prompt/video_text.h"
#include "text/chat_template/chat_template.h"
#include "text/read_file.h"
#include "text/tokenizer/tokenizer.h"

namespace ferry::prompt {

struct ExpandedPrompt {
  std::string rendered;  // with one placeholder for each image
  std::string text;      // with all placeholders
  std::vector<int64_t> ids;
  // images[i][t]: the position in `ids` of the first placeholder of tile t of image i. Tiles are in
  // the order of the pixel values.
  std::vector<std::vector<int64_t>> images;
  std::vector<int64_t> sounds = {};  // the position in `ids` of the first placeholder of each sound
  // videos[i][r]: the position in `ids` of the first placeholder of run r of video i.
  std::vector<std::vector<int64_t>> videos = {};
  bool two_way = false;  // whether all tokens of the prompt attend to each other
};

// A message of a chat: its images, its sounds, its videos, then its text.
struct ChatMessage {
  std::string role;  // such as "user" or "assistant"
  std::string text;  // UTF-8
  size_t images = 0, sounds = 0, videos = 0;
};

// ImagePrompt is not thread-safe, because its tokenizer is not.
class ImagePrompt {
 public:
  // Opens the files of a checkpoint: tokenizer.json, tokenizer_config.json, the processor files
  // and, if there is one, the chat template. kBadInput if there is no processor; kUnsupported, by
  // name, for unknown classes, fields and templates.
  static Result<ImagePrompt> open(const std::string& directory);
  // Opens the files that `read` returns, such as those of a bundle. `directory` begins error
  // messages.
  static Result<ImagePrompt> open(const std::string& directory, const text::ReadFile& read);

  // `chat` is JSON as ChatTemplate::render() takes it. The content of a message is a string or a
  // list of {"type": "text", "text": ...}, {"type": "image"} and, where the processor takes them,
  // {"type": "audio"} and {"type": "video"}. `images` and `videos` are those of the whole chat, in
  // order, and `sounds` the rows of each of its sounds. Error messages begin with `where`.
  // kBadInput for a wrong number of images, for a string if the template ignores strings (which the
  // reference accepts), and for a missing token. kUnsupported for other types of content.
  Result<ExpandedPrompt> chat(std::string_view chat, const std::string& where,
                              const text::chat::TimeText& time, std::span<const ImageLayout> images,
                              std::span<const int64_t> sounds = {},
                              std::span<const VideoLayout> videos = {});
  // Expands a prompt without a template. If `prompt` has no placeholder of images, they come before
  // it, and so do sounds, behind images, and videos behind these.
  Result<ExpandedPrompt> plain(std::string_view prompt, const std::string& where,
                               std::span<const ImageLayout> images,
                               std::span<const int64_t> sounds = {},
                               std::span<const VideoLayout> videos = {});
  // Returns the messages with the generation prompt, as JSON for chat(). If the text of a message
  // has placeholders, its images or sounds stand there.
  std::string chat_of(std::span<const ChatMessage> messages) const;
  // Returns the JSON of a chat with one user message.
  std::string user_message(std::string_view text, size_t images) const;

  // The placeholders of a tile; 0 unless all tiles have equally many.
  int64_t tokens_per_tile() const { return processor_.tokens_per_tile; }
  bool has_equal_tiles() const { return processor_.tokens_per_tile > 0; }
  // The placeholder of a row of an image; -1 if the processor takes no images.
  int64_t placeholder_id() const { return placeholder_id_; }
  bool takes_videos() const { return processor_.video_text != VideoText::kNone; }
  // The placeholder of the rows of videos; nullopt where the tokenizer has no such token, and
  // for a processor without videos.
  std::optional<int64_t> video_id() const { return video_id_; }
  // Whether the model takes second_per_grid_ts of videos.
  bool spaces_videos() const { return processor_.video_text == VideoText::kSpaced; }
  // The placeholder of a row of a sound; nullopt if the tokenizer has none.
  std::optional<int64_t> sound_id() const { return sound_id_; }
  // The name of the tensor, 1 for placeholders but for is_two_way(), that the reference's model
  // takes; empty if none.
  std::string_view token_types() const {
    const bool gemma = processor_.grammar == ImageGrammar::kGemma3 ||
                       processor_.grammar == ImageGrammar::kGemma3n || is_two_way();
    if (gemma) return "token_type_ids";
    const bool mixed =
        processor_.grammar == ImageGrammar::kQwenVl || processor_.grammar == ImageGrammar::kGemma4;
    return mixed ? "mm_token_type_ids" : "";
  }
  // Whether all tokens of a prompt attend to each other. Then their token types are 0.
  bool is_two_way() const { return processor_.grammar == ImageGrammar::kPaliGemma; }
  // kBadInput unless the processor has `tokens` placeholders per tile, the number that the vision
  // encoder makes, or 0 where the size of an image decides.
  Status expect_tokens_per_tile(int64_t tokens) const;
  text::Tokenizer& tokenizer() { return tokenizer_; }

 private:
  ImagePrompt(std::string directory, ImageProcessor processor, text::Tokenizer tokenizer);
  Status check_marks(std::span<const ImageLayout> images) const;
  Status check_strings(const text::ChatTemplate& chosen, const std::string& where,
                       const text::chat::TimeText& time) const;
  Result<ExpandedPrompt> encode(std::string rendered, bool add_special, const std::string& where,
                                std::span<const ImageLayout> images,
                                std::span<const int64_t> sounds,
                                std::span<const VideoLayout> videos);
  // Returns a text with one placeholder for each sound: where it has them, or before it.
  std::string with_sounds(const std::string& text, size_t sounds) const;
  Status check_sound_marks() const;
  Status check_video_marks(const std::string& where) const;
  // Finds the runs of images and videos, which stand in the order of `rendered`.
  Status find_with_videos(ExpandedPrompt& prompt, std::span<const ImageLayout> images,
                          std::span<const VideoLayout> videos, const std::string& where) const;
  Result<std::vector<int64_t>> find_sounds(std::span<const int64_t> ids,
                                           std::span<const int64_t> sounds,
                                           const std::string& where) const;
  // Puts the first token of a text behind the last image, and a newline behind the text.
  Status finish_two_way(std::string& rendered, std::span<const ImageLayout> images,
                        const std::string& where) const;
  Result<std::vector<std::vector<int64_t>>> find_tiles(std::span<const int64_t> ids,
                                                       std::span<const ImageLayout> images,
                                                       const std::string& where) const;

  std::string directory_;
  ImageProcessor processor_;
  text::Tokenizer tokenizer_;
  int64_t placeholder_id_ = -1;
  std::optional<int64_t> sound_id_ = {}, video_id_ = {};
  std::optional<text::ChatTemplate> template_;
};

}  // namespace ferry::prompt
