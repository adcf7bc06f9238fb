#include "prompt/sound_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "core/program_interface.h"
#include "core/text.h"
#include "media/sound.h"
#include "prompt/sound_input.h"

namespace ferry::prompt {

bool SoundRows::is_in(const packer::Bundle& bundle) {
  return packer::row_encoder(bundle.manifest(), kAudioEncoderRole) != nullptr;
}

bool SoundRows::has_prompt_file(const packer::Bundle& bundle) {
  return is_in(bundle) && bundle.has_text(SoundPrompt::kFile);
}

Result<SoundRows> SoundRows::open(const packer::Bundle& bundle) {
  if (!is_in(bundle)) {
    return fail(ErrorCode::kUsage, fmt::format("{}: this bundle takes no sounds among its tokens",
                                               printable(bundle.path())));
  }
  media::SoundSettings settings = FERRY_TRY(sound_settings(bundle));
  SoundRows rows(bundle, std::move(settings));
  const auto* mel = std::get_if<media::LogMelSettings>(&rows.settings_);
  if (mel == nullptr) return rows;
  const auto sizes = FERRY_TRY(runner::VisionEncoder::sizes_in(bundle, kSoundRows));
  rows.prompts_ = FERRY_TRY(SoundPrompt::open(bundle.text_directory(), reader_of(bundle),
                                              bundle.manifest().audio_token_id.value_or(-1),
                                              sizes.rows, mel->chunk_samples()));
  return rows;
}

Status SoundRows::load_encoder(ThreadPool& pool, const runner::MethodOptions& options) {
  pool_ = &pool;
  encoder_ = std::make_unique<runner::VisionEncoder>(
      FERRY_TRY(runner::VisionEncoder::load(bundle_, pool, options, kSoundRows)));
  return {};
}

Status SoundRows::check_rows(const EncodedSound& sound) const {
  const int64_t capacity = bundle_.manifest().context_length;
  if (sound.rows <= capacity) return {};
  return fail(ErrorCode::kUsage,
              fmt::format("{}: a sound of {:.0f} s becomes {} rows, the context has {} positions",
                          printable(bundle_.path()), sound.seconds, sound.rows, capacity));
}

// Frames are made only of sounds that fit, because a sound may be hours long.
Status SoundRows::encode_windows(std::vector<float> samples, const media::LogMelSettings& settings,
                                 EncodedSound& out) {
  out.windows = media::window_count(std::ssize(samples), settings);
  out.rows = out.windows * encoder_->rows();
  FERRY_RETURN_IF_ERROR(check_rows(out));
  const media::Features frames = media::all_windows(std::move(samples), settings, *pool_);
  out.features = FERRY_TRY(encoder_->encode(frames.values));
  return {};
}

Status SoundRows::measure_whole(int64_t count, const media::UsmMelSettings& settings,
                                EncodedSound& out) const {
  const int64_t most = media::UsmMelSettings::kMostSamples;
  const int64_t frames = settings.frames(count), limit = encoder_->sizes().most_frames();
  out.heard = std::min(out.seconds, static_cast<double>(most) / static_cast<double>(settings.rate));
  if (frames < 1 || frames > limit) {
    const std::string why =
        frames < 1 ? fmt::format("{} samples are the least of which there is a row",
                                 settings.least_samples())
                   : fmt::format("which are {} frames; the audio encoder takes {}", frames, limit);
    return fail(ErrorCode::kUsage, fmt::format("{}: a sound of {} samples: {}",
                                               printable(bundle_.path()), count, why));
  }
  out.rows = encoder_->sizes().rows_of_frames(frames);
  return check_rows(out);
}

Status SoundRows::encode_whole(std::vector<float> samples, const media::UsmMelSettings& settings,
                               EncodedSound& out) {
  FERRY_RETURN_IF_ERROR(measure_whole(std::ssize(samples), settings, out));
  if (settings.is_gemma3n) out.padded = media::UsmMelSettings::padded(std::ssize(samples));
  out.features = FERRY_TRY(encoder_->encode(media::usm_mel(samples, settings, *pool_)));
  return {};
}

Status SoundRows::encode_pairs(const media::PairedMelSettings& settings, int64_t padded,
                               EncodedSound& out) {
  const int64_t count = std::ssize(out.samples), limit = encoder_->sizes().most_frames();
  const int64_t pairs = settings.pairs(count), all = settings.pairs(padded);
  if (pairs < 1 || all > limit) {
    const std::string why =
        pairs < 1 ? fmt::format("{} samples are the least of which there is a row",
                                settings.least_samples())
                  : fmt::format(
                        "padded to {}, which are {} pairs of frames; the audio encoder "
                        "takes {}",
                        padded, all, limit);
    return fail(ErrorCode::kUsage, fmt::format("{}: a sound of {} samples: {}",
                                               printable(bundle_.path()), count, why));
  }
  out.rows = encoder_->sizes().rows_of_frames(pairs);
  out.padded = padded;
  FERRY_RETURN_IF_ERROR(check_rows(out));
  std::vector<float> samples = out.samples;
  samples.resize(static_cast<size_t>(padded), 0.0F);
  const std::vector<float> frames = FERRY_TRY(frame_pairs(samples, settings, *pool_));
  out.features = FERRY_TRY(encoder_->encode(frames));
  out.features.resize(static_cast<size_t>(out.rows * encoder_->row_width()));
  return {};
}

Result<EncodedSound> SoundRows::encode(std::vector<float> samples, double seconds) {
  EncodedSound out;
  out.seconds = out.heard = seconds;
  if (const auto* windows = std::get_if<media::LogMelSettings>(&settings_)) {
    FERRY_RETURN_IF_ERROR(encode_windows(std::move(samples), *windows, out));
  } else {
    const auto& whole = std::get<media::UsmMelSettings>(settings_);
    FERRY_RETURN_IF_ERROR(encode_whole(std::move(samples), whole, out));
  }
  return out;
}

bool SoundRows::pads_sounds() const {
  return std::holds_alternative<media::PairedMelSettings>(settings_) || encoder_->sizes().is_causal;
}

int64_t SoundRows::padded_samples(const EncodedSound& sound) const {
  const int64_t count = std::ssize(sound.samples);
  return encoder_->sizes().is_causal ? media::UsmMelSettings::padded(count) : count;
}

// The extractor's mask shows the frames that begin with the sound.
Status SoundRows::encode_causal(const media::UsmMelSettings& settings, int64_t padded,
                                EncodedSound& out) {
  const int64_t count = std::ssize(out.samples);
  FERRY_RETURN_IF_ERROR(measure_whole(count, settings, out));
  std::vector<float> samples = out.samples;
  samples.resize(static_cast<size_t>(padded), 0.0F);
  const std::vector<float> frames = media::usm_mel(samples, settings, *pool_);
  const int64_t all = std::ssize(frames) / settings.mel_bins;
  const int64_t shown = std::min(all, (count + settings.hop - 1) / settings.hop);
  out.features = FERRY_TRY(encoder_->encode_sounds(frames, {&shown, 1}));
  out.padded = padded;
  return {};
}

Status SoundRows::encode_padded(int64_t padded, EncodedSound& out) {
  if (const auto* paired = std::get_if<media::PairedMelSettings>(&settings_)) {
    return encode_pairs(*paired, padded, out);
  }
  return encode_causal(std::get<media::UsmMelSettings>(settings_), padded, out);
}

Result<bool> SoundRows::add(std::span<const float> samples, int64_t rate,
                            std::vector<EncodedSound>& sounds) {
  const double seconds = static_cast<double>(samples.size()) / static_cast<double>(rate);
  std::vector<float> resampled = media::at_rate(samples, rate, media::rate_of(settings_), *pool_);
  if (!pads_sounds()) {
    sounds.push_back(FERRY_TRY(encode(std::move(resampled), seconds)));
    return false;
  }
  EncodedSound added;
  added.seconds = added.heard = seconds;
  added.samples = std::move(resampled);
  const int64_t before = sounds.empty() ? 0 : sounds.front().padded;
  const int64_t padded = std::max(before, padded_samples(added));
  FERRY_RETURN_IF_ERROR(encode_padded(padded, added));
  const bool again = padded > before && !sounds.empty();
  if (again) {
    std::vector<EncodedSound> longer = sounds;
    for (EncodedSound& sound : longer) FERRY_RETURN_IF_ERROR(encode_padded(padded, sound));
    sounds = std::move(longer);
  }
  sounds.push_back(std::move(added));
  return again;
}

Result<bool> SoundRows::add(const std::string& path, std::vector<EncodedSound>& sounds) {
  const media::Sound sound = FERRY_TRY(media::read_sound(path));
  return add(sound.samples, sound.rate, sounds);
}

std::vector<runner::EmbeddingRows> rows_of(const SoundTokens& tokens,
                                           std::span<const EncodedSound> sounds) {
  std::vector<runner::EmbeddingRows> rows;
  for (size_t i = 0; i < tokens.sounds.size() && i < sounds.size(); ++i) {
    rows.push_back({.first = tokens.sounds[i], .values = sounds[i].features, .is_sound = true});
  }
  return rows;
}

std::vector<runner::EmbeddingRows> rows_of(const ExpandedPrompt& prompt,
                                           std::span<const EncodedImage> images,
                                           std::span<const EncodedSound> sounds,
                                           std::span<const EncodedVideo> videos) {
  std::vector<runner::EmbeddingRows> rows = rows_of(prompt, images);
  std::ranges::copy(rows_of(prompt, videos), std::back_inserter(rows));
  std::ranges::copy(rows_of(SoundTokens{.ids = {}, .sounds = prompt.sounds}, sounds),
                    std::back_inserter(rows));
  std::ranges::sort(rows, {}, &runner::EmbeddingRows::first);
  return rows;
}

Result<std::vector<int64_t>> row_counts(std::span<const EncodedSound> sounds) {
  std::vector<int64_t> counts;
  for (const EncodedSound& sound : sounds) {
    counts.push_back(sound.rows);
    if (sound.padded == sounds.front().padded) continue;
    return fail(
        ErrorCode::kUnsupported,
        fmt::format("sounds of {:.2f} s and {:.2f} s in one prompt: the processor pads them "
                    "to the same length, and the model hears that: not supported",
                    sounds.front().heard, sound.heard));
  }
  return counts;
}

}  // namespace ferry::prompt
