// The decoders behind decode_sound(), one for each format.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "media/sound.h"

namespace ferry::media {

bool is_wav(std::span<const std::byte> file);
bool is_flac(std::span<const std::byte> file);
Result<Sound> decode_wav(std::span<const std::byte> file, const std::string& where);
Result<Sound> decode_flac(std::span<const std::byte> file, const std::string& where);

// Checks what a header states before memory is allocated.
Status check_sound(int64_t rate, int64_t channels, int64_t samples, const std::string& where);

// Returns the mean of the channels, summed in f32 in their order, as numpy does over the first
// axis.
template <class Sample>
float mean_of(int channels, const Sample& sample) {
  float sum = sample(0);
  for (int c = 1; c < channels; ++c) sum += sample(c);
  return channels == 1 ? sum : sum / static_cast<float>(channels);
}

}  // namespace ferry::media
