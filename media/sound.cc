#include "media/sound.h"

#include <fmt/format.h>

#include <cmath>

#include "core/file.h"
#include "core/text.h"
#include "media/sound_codecs.h"

namespace ferry::media {

Status check_sound(int64_t rate, int64_t channels, int64_t samples, const std::string& where) {
  if (rate < kLeastRate || rate > kMostRate) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: a sampling rate of {} Hz: {} to {} are supported", where, rate,
                            kLeastRate, kMostRate));
  }
  if (channels < 1 || channels > kMostChannels) {
    return bad_input(
        fmt::format("{}: {} channels: 1 to {} are supported", where, channels, kMostChannels));
  }
  if (samples > kMostSamples) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: {} samples of a channel: at most {} are supported", where, samples,
                            kMostSamples));
  }
  // Memory is that of the samples at 16 kHz, which a file of a low rate multiplies.
  if (samples > kMostSeconds * rate) {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: {} samples at {} Hz: at most {} seconds are supported", where,
                            samples, rate, kMostSeconds));
  }
  if (samples < 1) return bad_input(where + ": has no samples");
  return {};
}

Status check_samples(std::span<const float> samples, int64_t rate, const std::string& where) {
  FERRY_RETURN_IF_ERROR(check_sound(rate, /*channels=*/1, std::ssize(samples), where));
  for (size_t i = 0; i < samples.size(); ++i) {
    if (!std::isfinite(samples[i])) {
      return bad_input(fmt::format("{}: sample {} is not finite", where, i));
    }
  }
  return {};
}

Result<Sound> decode_sound(std::span<const std::byte> file, const std::string& where) {
  if (is_wav(file)) return decode_wav(file, where);
  if (is_flac(file)) return decode_flac(file, where);
  return fail(ErrorCode::kUnsupported, where + ": neither a WAV nor a FLAC file");
}

Result<Sound> read_sound(const std::string& path) {
  const MappedFile file = FERRY_TRY(MappedFile::open(path));
  return decode_sound(file.bytes(), printable(path));
}

}  // namespace ferry::media
