// ImageInput turns a prompt with image files into the rows and token ids that the text decoder of a
// vision-language bundle takes. It makes the token ids of prompts with sounds too, where the
// processor of the checkpoint does (Gemma 4).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/image_grid.h"
#include "core/result.h"
#include "core/thread_pool.h"
#include "media/image.h"
#include "media/pixel_values.h"
#include "media/resample.h"
#include "media/settings.h"
#include "packer/bundle_reader.h"
#include "prompt/image_prompt.h"
#include "prompt/preprocess.h"
#include "prompt/video_input.h"
#include "runner/token_embedder.h"
#include "runner/vision_encoder.h"
#include "text/read_file.h"

namespace ferry::prompt {

// An image file after the vision encoder.
struct EncodedImage {
  PreprocessedImage file;
  std::vector<float> features;  // [tiles * rows per tile, runner::row_width()]
};

// Returns the images of an expanded prompt at their positions. The rows are views of the features.
std::vector<runner::EmbeddingRows> rows_of(const ExpandedPrompt& prompt,
                                           std::span<const EncodedImage> images);
// Returns the rows and columns of patches of images of any shape, or of tiles that are lists of
// patches; of pictures whose tiles have rows together, their sizes in pixels; nothing for other
// pixel values.
std::vector<ImageShape> shapes_of(const media::PixelValues& pixels);

std::vector<ImageLayout> layouts_of(std::span<const EncodedImage> images);

class ImageInput {
 public:
  // Reads the tokenizer, chat template and processor files of the bundle. kUsage for a bundle that
  // takes neither images nor sounds of its processor; errors as for ImagePrompt::open().
  static Result<ImageInput> open(const packer::Bundle& bundle);

  ImagePrompt& prompts() { return prompts_; }

  bool has_encoder() const { return encoder_ != nullptr; }
  // Loads the vision encoder and the settings of the image processor. kUsage for a bundle that
  // takes no images; errors as for media::load_settings() and media::set_pan_and_scan(). `pool`
  // must outlive this object. kBadInput unless the processor has the tiles and placeholders of the
  // encoder.
  Status load_encoder(ThreadPool& pool, const runner::MethodOptions& options,
                      bool pan_and_scan = false);
  // May be called after load_encoder(). The first image that cannot be read ends the call.
  // The images are those of one prompt.
  Result<std::vector<EncodedImage>> encode(std::span<const std::string> paths);
  // Encodes the frames of a folder, of which a second has `rate`. May be called after
  // load_encoder().
  Result<EncodedVideo> encode_video(const std::string& path, std::optional<double> rate);
  // Adds an image to those of a prompt. Returns whether the only one before it was encoded again,
  // because a picture that is not alone is processed otherwise.
  Result<bool> add(const std::string& path, std::vector<EncodedImage>& images);

 private:
  ImageInput(const packer::Bundle& bundle, ImagePrompt prompts)
      : bundle_(bundle), prompts_(std::move(prompts)) {}

  // Returns the picture in the one size that the encoder takes, if it takes one.
  media::Image resized(media::Image image, media::Backend backend) const;
  // Encodes images of a prompt that has `others` beside them.
  Result<std::vector<EncodedImage>> encode_among(std::span<const std::string> paths, size_t others);

  packer::Bundle bundle_;  // shares the mapped files
  ImagePrompt prompts_;
  media::Settings settings_ = {};                            // set by load_encoder()
  std::optional<media::VideoSettings> video_settings_ = {};  // set by the first video
  std::unique_ptr<runner::VisionEncoder> encoder_;
  ThreadPool* pool_ = nullptr;
};

// Reads the settings in the image processor files of a bundle; errors as for
// media::load_settings().
Result<media::Settings> image_settings(const packer::Bundle& bundle);
// Returns a function that reads the bundle's tokenizer, template and processor files.
text::ReadFile reader_of(const packer::Bundle& bundle);
// Returns a function that tells which of these files the bundle has.
std::function<bool(std::string_view)> files_of(const packer::Bundle& bundle);

// Whether the bundle has a vision encoder, or an audio encoder whose sounds have placeholders of
// the processor, and the files of that. The processor makes the tokens of prompts then, those
// without images too.
bool has_processor(const packer::Bundle& bundle);

// Returns kUsage for a bundle without a vision encoder.
Status expect_vision_encoder(const packer::Bundle& bundle);
// Returns kBadInput unless the processor makes the tiles that the bundle's vision encoder takes.
Status check_tiles(const packer::Bundle& bundle, const media::Settings& settings);
// Returns kBadInput unless prompts have the placeholder of the bundle's config, as many per tile as
// the vision encoder makes rows.
Status check_placeholders(const packer::Bundle& bundle, const ImagePrompt& prompts);
// Returns kBadInput unless sounds have the placeholder of the bundle's config.
Status check_sound_placeholder(const packer::Bundle& bundle, const ImagePrompt& prompts);

}  // namespace ferry::prompt
