#include "plan/image_patches.h"

#include <fmt/format.h>

#include "media/settings.h"
#include "plan/tokenizer_notes.h"

namespace ferry::plan {
namespace {

constexpr uint64_t kMaxProcessorBytes = uint64_t{1} << 20;

// A picture of Gemma 4 may be one token high, or one wide.
Status check_positions(const converters::VisionConfig& vision, const std::string& name) {
  const int64_t longest = vision.max_patches / vision.shuffle;
  if (!vision.gemma4 || vision.gemma4->positions >= longest) return {};
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: 'position_embedding_size' is {}, less than the {} patches of the "
                          "longest picture: not supported",
                          name, vision.gemma4->positions, longest));
}

}  // namespace

Status settle_patches(const std::vector<packer::CopiedFile>& copied, const std::string& name,
                      converters::ModelConfig& config) {
  if (!config.vision || config.vision->max_patches == 0) return {};
  converters::VisionConfig& vision = *config.vision;
  const text::ReadFile read = reader_of(copied);
  const std::string preprocessor = FERRY_TRY(read("preprocessor_config.json", kMaxProcessorBytes));
  const std::string processor = FERRY_TRY(read("processor_config.json", kMaxProcessorBytes));
  if (preprocessor.empty() && processor.empty()) return check_positions(vision, name);
  const media::Settings settings = FERRY_TRY(media::settings_from(preprocessor, processor, name));
  if (settings.patch != vision.patch_size || settings.merge != vision.shuffle ||
      !settings.has_patches()) {
    return bad_input(fmt::format(
        "{}: the image processor makes patches of {} pixels a side and a token of {} x {}, the "
        "vision tower takes patches of {} and makes a token of {} x {}",
        name, settings.patch, settings.merge, settings.merge, vision.patch_size, vision.shuffle,
        vision.shuffle));
  }
  vision.max_patches = settings.max_patches();
  return check_positions(vision, name);
}

}  // namespace ferry::plan
