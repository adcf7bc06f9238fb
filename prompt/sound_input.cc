#include "prompt/sound_input.h"

#include <fmt/format.h>

#include <filesystem>
#include <span>
#include <vector>

#include "core/file.h"
#include "core/program_interface.h"
#include "core/text.h"
#include "formats/safetensors/writer.h"
#include "media/sound.h"
#include "runner/audio_encoder.h"

namespace ferry::prompt {
namespace {

constexpr const char* kSoundFiles[] = {"preprocessor_config.json", "processor_config.json"};
constexpr uint64_t kMostProcessorBytes = 1 << 20;

// Returns the text of a file; empty if there is none.
Result<std::string> text_if_any(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::string();
  return read_text_file(path, kMostProcessorBytes);
}

}  // namespace

Result<media::LogMelSettings> sound_settings(const std::string& directory) {
  const std::string preprocessor = FERRY_TRY(text_if_any(directory + "/" + kSoundFiles[0]));
  const std::string processor = FERRY_TRY(text_if_any(directory + "/" + kSoundFiles[1]));
  return media::log_mel_settings(preprocessor, processor, directory);
}

Result<media::LogMelSettings> sound_settings(const packer::Bundle& bundle) {
  if (!runner::AudioEncoder::is_in(bundle)) {
    return fail(ErrorCode::kUsage, fmt::format("{}: has no audio encoder, and takes no sound",
                                               printable(bundle.path())));
  }
  const media::LogMelSettings mel = FERRY_TRY(sound_settings(bundle.text_directory()));
  const auto sizes = FERRY_TRY(runner::AudioEncoder::sizes_in(bundle));
  if (sizes.mel_bins == mel.mel_bins && sizes.frames == mel.chunk_frames()) return mel;
  return bad_input(fmt::format(
      "{}: the feature extractor makes {} frames of {}, the audio encoder "
      "takes {} of {}",
      printable(bundle.path()), mel.chunk_frames(), mel.mel_bins, sizes.frames, sizes.mel_bins));
}

Result<PreprocessedSound> preprocess_sound(const std::string& path,
                                           const media::LogMelSettings& settings,
                                           const std::string& output, ThreadPool& pool) {
  const media::Sound sound = FERRY_TRY(media::read_sound(path));
  const std::vector<float> chunk =
      media::one_chunk(media::at_rate(sound.samples, sound.rate, settings.rate, pool), settings);
  const media::Features features = media::log_mel(chunk, settings, pool);
  PreprocessedSound out{path,
                        sound.rate,
                        sound.channels,
                        static_cast<double>(sound.samples.size()) / static_cast<double>(sound.rate),
                        {1, features.mel_bins, features.frames}};
  const std::vector<formats::TensorData> tensors = {
      {{std::string(kInputFeaturesPort), DType::kF32, out.input_features},
       std::as_bytes(std::span(features.values))}};
  FERRY_RETURN_IF_ERROR(formats::write_safetensors(output, tensors));
  return out;
}

}  // namespace ferry::prompt
