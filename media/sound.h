// read_sound() reads a sound file as one channel. at_rate() changes its sampling rate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"

namespace ferry::media {

// The most samples of a channel that are read: 46 minutes at 48 kHz, 139 at 16 kHz.
inline constexpr int64_t kMostSamples = int64_t{1} << 27;
inline constexpr int64_t kMostSeconds = kMostSamples / 16000;
inline constexpr int kMostChannels = 255;
inline constexpr int64_t kLeastRate = 1000, kMostRate = 768000;  // Hz

struct Sound {
  int64_t rate = 0;            // samples a second
  int channels = 0;            // of the file
  std::vector<float> samples;  // the mean of the channels; integers are in [-1, 1)
};

// Reads WAV (integers of 8, 16, 24 and 32 bits, floats of 32 and 64 bits, the extensible form) and
// FLAC. Integers are divided by 2^(bits - 1), and unsigned ones of 8 bits have 128 subtracted
// before, as libsndfile does. kBadInput for damaged and truncated files and for samples that are
// not finite, kUnsupported for other formats and for more than kMostSamples. `where` begins the
// messages.
Result<Sound> decode_sound(std::span<const std::byte> file, const std::string& where);
// Decodes a file.
Result<Sound> read_sound(const std::string& path);

// Checks samples that are no file's: kUnsupported for another rate and for more than kMostSamples,
// kBadInput for none and for samples that are not finite. `where` begins the messages.
Status check_samples(std::span<const float> samples, int64_t rate, const std::string& where);

// Returns the samples at another rate, as torchaudio.functional.resample does by default: a
// windowed sinc of 6 zero crossings on each side that ends at 0.99 of the lower Nyquist frequency,
// with the square of a cosine as its window. There are ceil(n new_rate / rate) of them.
// Coefficients and sums are f64 here and f32 there.
std::vector<float> at_rate(std::span<const float> samples, int64_t rate, int64_t new_rate,
                           ThreadPool& pool);

}  // namespace ferry::media
