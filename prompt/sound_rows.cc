#include "prompt/sound_rows.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "core/program_interface.h"
#include "core/text.h"
#include "media/sound.h"
#include "prompt/image_input.h"
#include "prompt/sound_input.h"

namespace ferry::prompt {

bool SoundRows::is_in(const packer::Bundle& bundle) {
  return packer::row_encoder(bundle.manifest(), kAudioEncoderRole) != nullptr;
}

bool SoundRows::has_prompts(const packer::Bundle& bundle) {
  return is_in(bundle) && bundle.has_text(SoundPrompt::kFile);
}

Result<SoundRows> SoundRows::open(const packer::Bundle& bundle) {
  if (!is_in(bundle)) {
    return fail(ErrorCode::kUsage, fmt::format("{}: this bundle takes no sounds among its tokens",
                                               printable(bundle.path())));
  }
  const media::SoundSettings settings = FERRY_TRY(sound_settings(bundle));
  const auto sizes = FERRY_TRY(runner::VisionEncoder::sizes_in(bundle, kSoundRows));
  const auto& mel = std::get<media::LogMelSettings>(settings);
  SoundPrompt prompts = FERRY_TRY(SoundPrompt::open(bundle.text_directory(), reader_of(bundle),
                                                    bundle.manifest().audio_token_id.value_or(-1),
                                                    sizes.rows, mel.chunk_samples()));
  return SoundRows(bundle, mel, std::move(prompts));
}

Status SoundRows::load_encoder(ThreadPool& pool, const runner::MethodOptions& options) {
  pool_ = &pool;
  encoder_ = std::make_unique<runner::VisionEncoder>(
      FERRY_TRY(runner::VisionEncoder::load(bundle_, pool, options, kSoundRows)));
  return {};
}

Result<EncodedSound> SoundRows::encode(std::span<const float> samples, int64_t rate) {
  EncodedSound out;
  out.seconds = static_cast<double>(samples.size()) / static_cast<double>(rate);
  std::vector<float> resampled = media::at_rate(samples, rate, settings_.rate, *pool_);
  out.windows = media::window_count(std::ssize(resampled), settings_);
  out.rows = out.windows * encoder_->rows();
  const int64_t capacity = bundle_.manifest().context_length;
  if (out.rows > capacity) {
    return fail(ErrorCode::kUsage,
                fmt::format("{}: a sound of {:.0f} s becomes {} rows, the context has {} positions",
                            printable(bundle_.path()), out.seconds, out.rows, capacity));
  }
  // Frames are made only of sounds that fit, because a sound may be hours long.
  const media::Features frames = media::all_windows(std::move(resampled), settings_, *pool_);
  out.features = FERRY_TRY(encoder_->encode(frames.values));
  return out;
}

Result<EncodedSound> SoundRows::encode(const std::string& path) {
  const media::Sound sound = FERRY_TRY(media::read_sound(path));
  return encode(sound.samples, sound.rate);
}

std::vector<runner::EmbeddingRows> rows_of(const SoundTokens& tokens,
                                           std::span<const EncodedSound> sounds) {
  std::vector<runner::EmbeddingRows> rows;
  for (size_t i = 0; i < tokens.sounds.size() && i < sounds.size(); ++i) {
    rows.push_back({.first = tokens.sounds[i], .values = sounds[i].features});
  }
  return rows;
}

std::vector<int64_t> row_counts(std::span<const EncodedSound> sounds) {
  std::vector<int64_t> counts;
  for (const EncodedSound& sound : sounds) counts.push_back(sound.rows);
  return counts;
}

}  // namespace ferry::prompt
