#include "prompt/sound_input.h"

#include <fmt/format.h>

#include <filesystem>
#include <span>
#include <utility>
#include <variant>
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
// More than the longest sound makes with the settings of released models.
constexpr int64_t kMostValues = int64_t{1} << 28;

// Returns the text of a file; empty if there is none.
Result<std::string> text_if_any(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::string();
  return read_text_file(path, kMostProcessorBytes);
}

// Whether an encoder makes rows of blocks of frames, as that of Granite Speech does.
bool needs_pairs(const packer::Manifest& manifest) { return manifest.audio_block_rows.has_value(); }

// As mismatch() below, of an extractor of Granite Speech.
std::string mismatch_of_pairs(const media::PairedMelSettings& settings,
                              const runner::AudioEncoder::Sizes& sizes,
                              const packer::Manifest& manifest) {
  if (!needs_pairs(manifest)) return "is that of GraniteSpeechProcessor, the model is another";
  if (sizes.mel_bins != settings.pair_values()) {
    return fmt::format("makes pairs of frames of {} values, the audio encoder takes {}",
                       settings.pair_values(), sizes.mel_bins);
  }
  const int64_t rows = settings.projector_window / settings.projector_rate;
  if (manifest.audio_row_frames == settings.projector_window && manifest.audio_block_rows == rows) {
    return "";
  }
  return fmt::format("makes {} rows of {} pairs of frames, the audio encoder {} of {}", rows,
                     settings.projector_window, *manifest.audio_block_rows,
                     manifest.audio_row_frames.value_or(0));
}

// Returns what the encoder takes other than the extractor makes; empty if they agree.
std::string mismatch(const media::SoundSettings& settings, const runner::AudioEncoder::Sizes& sizes,
                     const packer::Manifest& manifest) {
  if (const auto* paired = std::get_if<media::PairedMelSettings>(&settings)) {
    return mismatch_of_pairs(*paired, sizes, manifest);
  }
  if (needs_pairs(manifest)) {
    return "is not that of GraniteSpeechProcessor, which the model needs";
  }
  const bool whole_sounds = packer::row_encoder(manifest, kAudioEncoderRole) != nullptr;
  const auto* usm = std::get_if<media::UsmMelSettings>(&settings);
  const bool needs_usm = manifest.audio_row_frames.has_value();
  const bool needs_gemma3n = manifest.audio_rows.has_value();
  if ((usm != nullptr) != needs_usm || (usm != nullptr && usm->is_gemma3n != needs_gemma3n)) {
    const bool is_gemma3n = usm != nullptr ? usm->is_gemma3n : needs_gemma3n;
    return fmt::format("is {} of {}", usm != nullptr ? "that" : "not that",
                       is_gemma3n ? "Gemma3nProcessor" : "Gemma4Processor") +
           (usm != nullptr ? ", the model is another" : ", which the model needs");
  }
  if (usm != nullptr) {
    if (sizes.mel_bins == usm->mel_bins) return "";
    return fmt::format("makes frames of {}, the audio encoder takes those of {}", usm->mel_bins,
                       sizes.mel_bins);
  }
  if (const auto* whole = std::get_if<media::NormalizedMelSettings>(&settings)) {
    if (!sizes.gives_labels()) {
      return "makes frames of whole sounds, the audio encoder takes others";
    }
    if (sizes.mel_bins == whole->mel_bins) return "";
    return fmt::format("makes frames of {}, the audio encoder takes those of {}", whole->mel_bins,
                       sizes.mel_bins);
  }
  if (sizes.gives_labels()) return "makes other input than the audio encoder takes";
  const auto* mel = std::get_if<media::LogMelSettings>(&settings);
  if (mel == nullptr) {
    return sizes.takes_samples() ? "" : "makes samples, the audio encoder takes frames";
  }
  if (sizes.takes_samples()) return "makes frames, the audio encoder takes samples";
  if (mel->whole_sounds != whole_sounds) {
    return mel->whole_sounds ? "is that of VoxtralProcessor, the model is another"
                             : "is not that of VoxtralProcessor, which the model needs";
  }
  if (sizes.mel_bins == mel->mel_bins && sizes.frames == mel->chunk_frames()) return "";
  return fmt::format("makes {} frames of {}, the audio encoder takes {} of {}", mel->chunk_frames(),
                     mel->mel_bins, sizes.frames, sizes.mel_bins);
}

struct MadeSound {
  Shape shape;
  std::vector<float> values;
  std::vector<uint8_t> mask = {};  // of the frames, where the processor makes one
  std::string_view mask_name = kAttentionMaskPort;
};

// The extractor pads samples, of which it makes frames that its mask hides.
Result<MadeSound> make_padded(std::span<const float> samples, const media::UsmMelSettings& settings,
                              ThreadPool& pool) {
  const int64_t count = std::ssize(samples), frames = settings.padded_frames(count);
  if (frames < 1) {
    return fail(ErrorCode::kUsage,
                fmt::format("a sound of {} samples is too short: {} samples are the least of which "
                            "there is a frame",
                            count, settings.least_samples()));
  }
  if (frames > kMostValues / settings.mel_bins) {
    return fail(ErrorCode::kUsage,
                fmt::format("a sound of {} samples makes {} frames of {}, more than {} values",
                            count, frames, settings.mel_bins, kMostValues));
  }
  MadeSound made{{1, frames, settings.mel_bins}, media::usm_mel(samples, settings, pool)};
  made.values.resize(static_cast<size_t>(frames * settings.mel_bins));
  made.mask.assign(static_cast<size_t>(settings.frames(count)), 1);
  made.mask.resize(static_cast<size_t>(frames));
  made.mask_name = "input_features_mask";
  return made;
}

Result<MadeSound> make_pairs(std::span<const float> samples,
                             const media::PairedMelSettings& settings, ThreadPool& pool) {
  std::vector<float> values = FERRY_TRY(frame_pairs(samples, settings, pool));
  const int64_t pairs = std::ssize(values) / settings.pair_values();
  return MadeSound{{1, pairs, settings.pair_values()}, std::move(values)};
}

// The extractor makes one frame more, of zeros, which its mask hides.
Result<MadeSound> make_whole(std::span<const float> samples,
                             const media::NormalizedMelSettings& settings, ThreadPool& pool) {
  MadeSound made;
  made.values = FERRY_TRY(whole_sound_frames(samples, settings, pool));
  const int64_t frames = std::ssize(made.values) / settings.mel_bins;
  made.values.resize(made.values.size() + static_cast<size_t>(settings.mel_bins));
  made.shape = {1, frames + 1, settings.mel_bins};
  made.mask.assign(static_cast<size_t>(frames), 1);
  made.mask.push_back(0);
  return made;
}

Result<MadeSound> make_input(std::vector<float> samples, const media::SoundSettings& settings,
                             ThreadPool& pool) {
  if (const auto* usm = std::get_if<media::UsmMelSettings>(&settings)) {
    return make_padded(samples, *usm, pool);
  }
  if (const auto* paired = std::get_if<media::PairedMelSettings>(&settings)) {
    return make_pairs(samples, *paired, pool);
  }
  if (const auto* whole = std::get_if<media::NormalizedMelSettings>(&settings)) {
    return make_whole(samples, *whole, pool);
  }
  if (const auto* mel = std::get_if<media::LogMelSettings>(&settings)) {
    if (mel->whole_sounds) {
      media::Features all = media::all_windows(std::move(samples), *mel, pool);
      const int64_t width = mel->chunk_frames();
      return MadeSound{{all.frames / width, all.mel_bins, width}, std::move(all.values)};
    }
    media::Features features = media::log_mel(media::one_chunk(samples, *mel), *mel, pool);
    return MadeSound{{1, features.mel_bins, features.frames}, std::move(features.values)};
  }
  std::vector<float> values =
      media::waveform(std::move(samples), std::get<media::WaveformSettings>(settings));
  return MadeSound{{1, std::ssize(values)}, std::move(values)};
}

}  // namespace

Result<media::SoundSettings> sound_settings(const std::string& directory) {
  const std::string preprocessor = FERRY_TRY(text_if_any(directory + "/" + kSoundFiles[0]));
  const std::string processor = FERRY_TRY(text_if_any(directory + "/" + kSoundFiles[1]));
  return media::sound_settings(preprocessor, processor, directory);
}

Result<media::SoundSettings> sound_settings(const packer::Bundle& bundle) {
  if (!runner::AudioEncoder::is_in(bundle)) {
    return fail(ErrorCode::kUsage, fmt::format("{}: has no audio encoder, and takes no sound",
                                               printable(bundle.path())));
  }
  media::SoundSettings settings = FERRY_TRY(sound_settings(bundle.text_directory()));
  const auto sizes = FERRY_TRY(runner::AudioEncoder::sizes_in(bundle));
  const std::string differs = mismatch(settings, sizes, bundle.manifest());
  if (differs.empty()) return settings;
  return bad_input(fmt::format("{}: the feature extractor {}", printable(bundle.path()), differs));
}

Result<std::vector<float>> whole_sound_frames(std::span<const float> samples,
                                              const media::NormalizedMelSettings& settings,
                                              ThreadPool& pool) {
  const int64_t frames = settings.frames(std::ssize(samples));
  if (frames > kMostValues / settings.mel_bins) {
    return fail(ErrorCode::kUsage,
                fmt::format("a sound of {} samples makes {} frames of {}, more than {} values",
                            samples.size(), frames, settings.mel_bins, kMostValues));
  }
  if (frames >= media::kLeastNormalizedFrames) {
    return media::normalized_mel(samples, settings, pool);
  }
  return fail(ErrorCode::kUsage,
              fmt::format("a sound of {} samples is too short: {} samples are the least of which "
                          "frames have a deviation",
                          samples.size(), media::kLeastNormalizedFrames * settings.hop));
}

Result<std::vector<float>> frame_pairs(std::span<const float> samples,
                                       const media::PairedMelSettings& settings, ThreadPool& pool) {
  const int64_t pairs = settings.pairs(std::ssize(samples));
  if (pairs > kMostValues / settings.pair_values()) {
    return fail(ErrorCode::kUsage,
                fmt::format("a sound of {} samples makes {} pairs of frames, more than {} values",
                            samples.size(), pairs, kMostValues));
  }
  if (pairs >= 1) return media::paired_mel(samples, settings, pool);
  return fail(ErrorCode::kUsage,
              fmt::format("a sound of {} samples is too short: {} samples are the least of which "
                          "there are two frames",
                          samples.size(), settings.least_samples()));
}

Result<PreprocessedSound> preprocess_sound(const std::string& path,
                                           const media::SoundSettings& settings,
                                           const std::string& output, ThreadPool& pool) {
  const media::Sound sound = FERRY_TRY(media::read_sound(path));
  const MadeSound made = FERRY_TRY(make_input(
      media::at_rate(sound.samples, sound.rate, media::rate_of(settings), pool), settings, pool));
  const bool frames = !std::holds_alternative<media::WaveformSettings>(settings);
  PreprocessedSound out{path,
                        sound.rate,
                        sound.channels,
                        static_cast<double>(sound.samples.size()) / static_cast<double>(sound.rate),
                        std::string(frames ? kInputFeaturesPort : kInputValuesPort),
                        made.shape};
  std::vector<formats::TensorData> tensors = {
      {{out.tensor, DType::kF32, out.shape}, std::as_bytes(std::span(made.values))}};
  if (!made.mask.empty()) {
    out.mask = {1, std::ssize(made.mask)};
    out.mask_name = made.mask_name;
    tensors.push_back(
        {{out.mask_name, DType::kBool, out.mask}, std::as_bytes(std::span(made.mask))});
  }
  FERRY_RETURN_IF_ERROR(formats::write_safetensors(output, tensors));
  return out;
}

}  // namespace ferry::prompt
