#include "plan/image_patches.h"

#include <fmt/format.h>

#include <algorithm>

#include "converters/blocks/mobilenet_encoder.h"
#include "core/text.h"
#include "media/settings.h"
#include "media/video_settings.h"
#include "plan/tokenizer_notes.h"
#include "prompt/image_processor.h"

namespace ferry::plan {
namespace {

constexpr uint64_t kMaxProcessorBytes = uint64_t{1} << 20;
// A mask takes memory with the square of the patches.
constexpr int64_t kDefaultPatches = 4096;

// A picture of Gemma 4 may be one token high, or one wide.
Status check_positions(const converters::VisionConfig& vision, const std::string& name) {
  const int64_t longest = vision.max_patches / vision.shuffle;
  if (!vision.gemma4 || vision.gemma4->positions >= longest) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: 'position_embedding_size' is {}, less than the {} patches of the "
                          "longest picture: not supported",
                          name, vision.gemma4->positions, longest));
}

Status take_lists(const media::Settings& settings, const std::string& name,
                  converters::VisionConfig& vision) {
  if (settings.patch != vision.patch_size || settings.merge != vision.shuffle ||
      !settings.has_patches()) {
    return bad_input(fmt::format(
        "{}: the image processor makes patches of {} pixels a side and a token of {} x {}, the "
        "vision tower takes patches of {} and makes a token of {} x {}",
        name, settings.patch, settings.merge, settings.merge, vision.patch_size, vision.shuffle,
        vision.shuffle));
  }
  vision.max_patches = settings.max_patches();
  return {};
}

// The frames of videos may be longer lists than pictures. Where their settings are not supported,
// or the positions do not reach so far, the bundle refuses videos.
void take_frames(const media::VideoFiles& files, const std::string& name,
                 converters::VisionConfig& vision) {
  const auto settings = media::video_settings_from(files, name);
  if (!settings || !settings->frame.has_patches()) return;
  const media::Settings& frame = settings->frame;
  const int64_t patches = frame.max_patches();
  if (frame.patch != vision.patch_size || frame.merge != vision.shuffle) return;
  if (vision.gemma4->positions < patches / vision.shuffle) return;
  vision.max_patches = std::max(vision.max_patches, patches);
}

// Pictures of a tower of convolutions have any size.
Status take_size(const media::Settings& settings, const std::string& name,
                 converters::VisionConfig& vision) {
  if (settings.kind != media::ProcessorKind::kClip) {
    return bad_input(name + ": the image processor is not that of the vision tower");
  }
  vision.image_size = settings.tile;
  return {};
}

Status check_states(const converters::VisionConfig& vision, const std::string& name) {
  constexpr int64_t kMostValues = int64_t{1} << 28;
  if (!vision.mobilenet) return {};
  const int64_t values = converters::mobilenet_state_size(vision);
  if (values <= kMostValues) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: pictures of {} pixels a side make the vision tower hold {} numbers "
                          "at once, where {} are the limit",
                          name, vision.image_size, values, kMostValues));
}

// Pictures of the size that the programs take must not change in the image processor.
Status check_size(const media::Settings& settings, Extent stated) {
  const media::Size size = {static_cast<int>(stated.columns), static_cast<int>(stated.rows)};
  const media::Size made = FERRY_TRY(media::processed_size(size, settings));
  if (made == size) return {};
  return fail_field(ErrorCode::kUsage, "image-size",
                    fmt::format(" {}x{}: the image processor makes {}x{} of such a picture",
                                size.width, size.height, made.width, made.height));
}

// Returns the tokens that the processor puts behind rows of a picture.
Result<converters::RowMarks> row_marks_in(const std::vector<packer::CopiedFile>& copied,
                                          int64_t vocab_size, const std::string& name) {
  const prompt::ImageProcessor processor =
      FERRY_TRY(prompt::read_image_processor(name, reader_of(copied)));
  auto tokenizer = tokenizer_in(copied);
  const auto id_of = [&](const std::string& token) -> Result<int64_t> {
    const std::optional<int64_t> id = tokenizer ? tokenizer->find(token) : std::nullopt;
    if (id && *id < vocab_size) return *id;
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: one program of all components needs the token {} behind rows of "
                            "a picture, which the tokenizer does not have",
                            name, quoted(token)));
  };
  converters::RowMarks marks;
  marks.row = FERRY_TRY(id_of(processor.open));
  marks.picture = FERRY_TRY(id_of(processor.close));
  return marks;
}

}  // namespace

Status settle_patches(const ConvertOptions& options, const std::vector<packer::CopiedFile>& copied,
                      converters::ModelConfig& config) {
  const bool one_size = options.image_size && is_one_program(options);
  if (!config.vision) return {};
  if (config.vision->max_patches == 0 && !config.vision->mobilenet && !one_size) return {};
  converters::VisionConfig& vision = *config.vision;
  const std::string name = printable(options.source);
  const text::ReadFile read = reader_of(copied);
  const std::string preprocessor = FERRY_TRY(read("preprocessor_config.json", kMaxProcessorBytes));
  const std::string processor = FERRY_TRY(read("processor_config.json", kMaxProcessorBytes));
  if (!preprocessor.empty() || !processor.empty()) {
    const media::Settings settings = FERRY_TRY(media::settings_from(preprocessor, processor, name));
    if (vision.max_patches > 0) FERRY_RETURN_IF_ERROR(take_lists(settings, name, vision));
    if (vision.gemma4 && vision.video_token_id) {
      const auto video = FERRY_TRY(read(media::kVideoPreprocessorFile, kMaxProcessorBytes));
      take_frames({processor, video, preprocessor}, name, vision);
    }
    if (vision.mobilenet) FERRY_RETURN_IF_ERROR(take_size(settings, name, vision));
    if (one_size) FERRY_RETURN_IF_ERROR(check_size(settings, *options.image_size));
    if (one_size && settings.kind == media::ProcessorKind::kPixtral) {
      vision.row_marks = FERRY_TRY(row_marks_in(copied, config.vocab_size, name));
    }
  }
  if (one_size && vision.max_patches > 0) {
    vision.max_patches = options.image_size->area() / (vision.patch_size * vision.patch_size);
  }
  FERRY_RETURN_IF_ERROR(check_states(vision, name));
  return check_positions(vision, name);
}

bool is_one_program(const ConvertOptions& options) {
  return options.layout == ProgramLayout::kOneProgram;
}

int64_t rows_of_image(const ConvertOptions& options, const converters::VisionConfig& vision) {
  if (!vision.any_shape) return vision.image_tokens();
  const int64_t side = vision.patch_size * vision.shuffle;
  if (!options.image_size) return 0;
  const int64_t marks = vision.row_marks ? options.image_size->rows / side : 0;
  return options.image_size->area() / (side * side) + marks;
}

Result<std::optional<ImageShape>> picture_shape(const ConvertOptions& options,
                                                const converters::ModelConfig& config) {
  constexpr const char* kOption = "image-size";
  if (!options.image_size) return std::optional<ImageShape>();
  if (!config.vision || (!config.vision->any_shape && config.vision->max_patches == 0)) {
    return fail_field(ErrorCode::kUsage, kOption,
                      ": is for vision towers that take images of any shape");
  }
  if (!is_one_program(options)) {
    return fail_field(ErrorCode::kUsage, kOption,
                      ": is for --layout one-program; other programs take images of any size");
  }
  if (options.max_patches) return fail_field(ErrorCode::kUsage, kOption, ": not with max-patches");
  const Extent size = *options.image_size;
  const int64_t patch = config.vision->patch_size, side = patch * config.vision->shuffle;
  if (size.rows % side == 0 && size.columns % side == 0) {
    return std::optional(ImageShape{size.rows / patch, size.columns / patch});
  }
  return fail_field(ErrorCode::kUsage, kOption,
                    fmt::format(" {}x{}: the sides of pictures of {} are multiples of {} pixels",
                                size.columns, size.rows, config.model_type, side));
}

Result<int64_t> image_patches(const ConvertOptions& options, const converters::ModelConfig& config,
                              int64_t context_length) {
  constexpr const char* kOption = "max-patches";
  if (!config.vision || !config.vision->any_shape) {
    if (!options.max_patches) return int64_t{0};
    return fail_field(ErrorCode::kUsage, kOption,
                      ": is for vision towers that take images of any shape");
  }
  const int64_t unit = config.vision->shuffle * config.vision->shuffle;
  if (options.image_size) return int64_t{0};
  if (!options.max_patches) {
    return unit * std::min(std::max<int64_t>(kDefaultPatches / unit, 1), context_length);
  }
  if (*options.max_patches >= unit) return *options.max_patches / unit * unit;
  return fail_field(ErrorCode::kUsage, kOption,
                    fmt::format(" {}: a block has {} patches", *options.max_patches, unit));
}

}  // namespace ferry::plan
