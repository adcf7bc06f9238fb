// ImageInput: prompts with image files for a vision-language bundle, as the rows and token ids that
// its text decoder takes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "media/settings.h"
#include "packer/bundle_reader.h"
#include "prompt/image_prompt.h"
#include "prompt/preprocess.h"
#include "runner/token_embedder.h"
#include "runner/vision_encoder.h"
#include "text/read_file.h"

namespace ferry::prompt {

// An image file behind the vision encoder.
struct EncodedImage {
  PreprocessedImage file;
  std::vector<float> features;  // [tiles * rows of a tile, hidden_size]
};

// The images of a prompt that has been expanded, at their positions. Views of the features.
std::vector<runner::EmbeddingRows> rows_of(const ExpandedPrompt& prompt,
                                           std::span<const EncodedImage> images);
std::vector<ImageLayout> layouts_of(std::span<const EncodedImage> images);

class ImageInput {
 public:
  // The tokenizer, chat template and processor files of the bundle. kUsage for a bundle that takes
  // no images; errors as for text::ImagePrompt::open().
  static Result<ImageInput> open(const packer::Bundle& bundle);

  ImagePrompt& prompts() { return prompts_; }

  bool has_encoder() const { return encoder_ != nullptr; }
  // Loads the vision encoder and the settings of the image processor; errors as for
  // media::load_settings(). `pool` must outlive this. kBadInput unless the processor's tiles and
  // placeholders are those of the encoder.
  Status load_encoder(ThreadPool& pool, const runner::MethodOptions& options);
  // After load_encoder(). The first image that cannot be read ends it.
  Result<std::vector<EncodedImage>> encode(std::span<const std::string> paths);

 private:
  ImageInput(const packer::Bundle& bundle, ImagePrompt prompts)
      : bundle_(bundle), prompts_(std::move(prompts)) {}

  packer::Bundle bundle_;  // shares the mapped files
  ImagePrompt prompts_;
  media::Settings settings_ = {};  // after load_encoder()
  std::unique_ptr<runner::VisionEncoder> encoder_;
  ThreadPool* pool_ = nullptr;
};

// What the image processor files of a bundle say; errors as for media::load_settings().
Result<media::Settings> image_settings(const packer::Bundle& bundle);
// The files of a bundle that tokenizers, templates and processors are made of.
text::ReadFile reader_of(const packer::Bundle& bundle);
// Which of them there are.
std::function<bool(std::string_view)> files_of(const packer::Bundle& bundle);

// kUsage for a bundle without a vision encoder.
Status expect_vision_encoder(const packer::Bundle& bundle);
// kBadInput unless the processor makes the tiles that the vision encoder of the bundle takes.
Status check_tiles(const packer::Bundle& bundle, const media::Settings& settings);
// kBadInput unless prompts have the placeholder of the bundle's config, as many as the vision
// encoder makes rows of a tile.
Status check_placeholders(const packer::Bundle& bundle, const ImagePrompt& prompts);

}  // namespace ferry::prompt
