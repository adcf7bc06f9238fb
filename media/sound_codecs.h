// The decoders behind decode_sound(), one for each format.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "media/pairwise_sum.h"
#include "media/sound.h"

namespace ferry::media {

bool is_wav(std::span<const std::byte> file);
bool is_flac(std::span<const std::byte> file);
Result<Sound> decode_wav(std::span<const std::byte> file, const std::string& where);
Result<Sound> decode_flac(std::span<const std::byte> file, const std::string& where);

// Checks what a header states before memory is allocated.
Status check_sound(int64_t rate, int64_t channels, int64_t samples, const std::string& where);

// Returns the mean of the channels, summed in f32 as numpy does over the first axis.
template <class Sample>
float mean_of(int channels, const Sample& sample) {
  std::array<float, kMostChannels> samples;
  const auto count = static_cast<size_t>(channels);
  for (size_t c = 0; c < count; ++c) samples[c] = sample(static_cast<int>(c));
  if (channels == 1) return samples[0];
  return pairwise_sum(std::span(samples).first(count)) / static_cast<float>(channels);
}

}  // namespace ferry::media
