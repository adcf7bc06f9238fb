// Input: a sound file, which is refused with a good message or decoded to finite samples.
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "media/sound.h"
#include "tests/fuzz/require.h"

namespace ferry::sound_fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace ferry::media;
  const std::span file(reinterpret_cast<const std::byte*>(data), size);
  const auto sound = decode_sound(file, "f");
  if (!sound) {
    ferry::require_good_message(sound.error());
    return 0;
  }
  ferry::require(sound->rate >= kLeastRate && sound->rate <= kMostRate);
  ferry::require(sound->channels >= 1 && sound->channels <= kMostChannels);
  ferry::require(!sound->samples.empty() && std::ssize(sound->samples) <= kMostSamples);
  for (const float sample : sound->samples) ferry::require(std::isfinite(sample));
  return 0;
}

}  // namespace ferry::sound_fuzz
