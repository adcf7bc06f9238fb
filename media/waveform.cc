#include "media/waveform.h"

#include <cmath>
#include <cstddef>
#include <span>

namespace ferry::media {
namespace {

// Numbers that numpy sums in one loop, and those that it adds side by side.
constexpr size_t kPairwiseBlock = 128, kLanes = 8;
constexpr float kLeastVariance = 1e-7F;

float block_sum(std::span<const float> values) {
  if (values.size() < kLanes) {
    float sum = 0.0F;
    for (const float value : values) sum += value;
    return sum;
  }
  float lanes[kLanes] = {};
  size_t i = 0;
  for (; i < kLanes; ++i) lanes[i] = values[i];
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t k = 0; k < kLanes; ++k) lanes[k] += values[i + k];
  }
  float sum = ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) +
              ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
  for (; i < values.size(); ++i) sum += values[i];
  return sum;
}

float pairwise_sum(std::span<const float> values) {
  if (values.size() <= kPairwiseBlock) return block_sum(values);
  const size_t half = values.size() / 2 / kLanes * kLanes;
  return pairwise_sum(values.first(half)) + pairwise_sum(values.subspan(half));
}

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
