#include "media/waveform.h"

#include <cmath>
#include <span>

#include "media/pairwise_sum.h"

namespace ferry::media {
namespace {

constexpr float kLeastVariance = 1e-7F;

float mean_of(std::span<const float> values) {
  return static_cast<float>(static_cast<double>(pairwise_sum(values)) /
                            static_cast<double>(values.size()));
}

}  // namespace

std::vector<float> waveform(std::vector<float> samples, const WaveformSettings& settings) {
  if (!settings.normalize || samples.empty()) return samples;
  const float mean = mean_of(samples);
  for (float& sample : samples) sample -= mean;
  std::vector<float> squares = samples;
  for (float& square : squares) square *= square;
  const float deviation = std::sqrt(mean_of(squares) + kLeastVariance);
  for (float& sample : samples) sample /= deviation;
  return samples;
}

}  // namespace ferry::media
