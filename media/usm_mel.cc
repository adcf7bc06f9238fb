#include "media/usm_mel.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <numbers>

#include "media/spectrum.h"

namespace ferry::media {
namespace {

// Returns the cosine of an angle of at least 0 as numpy computes it in f32 where a processor has
// fused products and sums: quarters of a turn taken off in three steps, and a polynomial. In frames
// of a tone, bins far from it have little but the rounding of the window.
float numpy_cosine(float angle) {
  const auto quarters =
      static_cast<float>(std::nearbyint(static_cast<double>(angle) * 0x1.45f306p-1));
  float rest = std::fma(quarters, -0x1.921fb0p+0F, angle);
  rest = std::fma(quarters, -0x1.5110b4p-22F, rest);
  rest = std::fma(quarters, -0x1.846988p-48F, rest);
  const auto powers = [square = rest * rest](std::initializer_list<float> factors) {
    float sum = 0.0F;
    for (const float factor : factors) sum = std::fma(sum, square, factor);
    return sum;
  };
  // The cosine of a whole number of quarters and a rest is that of the rest or its sine.
  const int64_t quadrant = std::llrint(quarters) % 4;
  float value = 0.0F;
  if (quadrant % 2 == 0) {
    value = powers({0x1.98e616p-16F, -0x1.6c06dcp-10F, 0x1.55553cp-5F, -0.5F, 1.0F});
  } else {
    const float sum = powers({0x1.7d3bbcp-19F, -0x1.a06bbap-13F, 0x1.11119ap-7F, -0x1.555556p-3F});
    const float scaled = sum * (rest * rest);
    value = std::fma(scaled, rest, rest);
  }
  return quadrant == 1 || quadrant == 2 ? -value : value;
}

// Makes the frames of a sound one by one.
class UsmFrames {
 public:
  UsmFrames(std::span<const float> samples, const UsmMelSettings& settings)
      : samples_(samples),
        settings_(settings),
        transform_(settings.window),
        filters_(htk_mel_filters(settings.mel_bins, settings.window, settings.rate,
                                 settings.least_hz, settings.most_hz)) {
    for (int64_t i = 0; i < settings.frame; ++i) hann_.push_back(window_value(i));
  }

  void make(int64_t frame, std::span<float> out) const {
    const auto length = static_cast<size_t>(settings_.window);
    std::vector<double> values = windowed(frame);
    std::vector<Transform::Complex> spectrum(length), scratch;
    transform_.run(values.data(), spectrum.data(), scratch);
    for (size_t bin = 0; bin <= length / 2; ++bin) values[bin] = std::abs(spectrum[bin]);
    for (size_t mel = 0; mel < filters_.size(); ++mel) {
      const double sum = filters_[mel].add(values);
      double value =
          std::log(settings_.is_gemma3n ? std::max(sum, settings_.floor) : sum + settings_.floor);
      if (!settings_.means.empty()) value -= settings_.means[mel];
      if (!settings_.deviations.empty()) value /= settings_.deviations[mel];
      out[mel] = static_cast<float>(value);
    }
  }

 private:
  // Gemma 3n rounds to f32 at each step.
  float window_value(int64_t i) const {
    if (settings_.is_gemma3n) {
      const float turned = static_cast<float>(2.0 * std::numbers::pi) * static_cast<float>(i);
      const float angle = turned / static_cast<float>(settings_.frame);
      return 0.5F * (1.0F - numpy_cosine(angle));
    }
    const double angle =
        2.0 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(settings_.frame);
    return static_cast<float>(0.5 - 0.5 * std::cos(angle));
  }
  // Returns a sample by its place behind the zeros before the sound.
  float sample(int64_t at) const {
    if (!settings_.is_gemma3n) at -= settings_.frame / 2;
    if (at < 0 || at >= std::ssize(samples_)) return 0.0F;
    const float value = samples_[static_cast<size_t>(at)];
    return settings_.scale == 1.0 ? value : value * static_cast<float>(settings_.scale);
  }
  // Rounded to f32 where the reference rounds. A frame has one sample more, of which differences
  // are made: in the flavor of HTK the last one is left out, else the first one.
  float emphasized(int64_t start, int64_t i) const {
    if (settings_.preemphasis == 0.0) return sample(start + i);
    const auto factor = static_cast<float>(settings_.preemphasis);
    if (settings_.htk_preemphasis && i == 0) {
      return sample(start) * static_cast<float>(1.0 - settings_.preemphasis);
    }
    const int64_t at = settings_.htk_preemphasis ? start + i : start + i + 1;
    const float before = factor * sample(at - 1);
    return sample(at) - before;
  }
  std::vector<double> windowed(int64_t frame) const {
    std::vector<double> values(static_cast<size_t>(settings_.window));
    for (int64_t i = 0; i < settings_.frame; ++i) {
      const float value = emphasized(frame * settings_.hop, i) * hann_[static_cast<size_t>(i)];
      values[static_cast<size_t>(i)] = static_cast<double>(value);
    }
    return values;
  }

  std::span<const float> samples_;
  const UsmMelSettings& settings_;
  const Transform transform_;
  const std::vector<MelFilter> filters_;
  std::vector<float> hann_;
};

}  // namespace

std::vector<float> usm_mel(std::span<const float> samples, const UsmMelSettings& settings,
                           ThreadPool& pool) {
  const auto most = static_cast<size_t>(UsmMelSettings::kMostSamples);
  const UsmFrames made(samples.first(std::min(samples.size(), most)), settings);
  const int64_t frames = settings.frames(std::ssize(samples));
  const auto bins = static_cast<size_t>(settings.mel_bins);
  std::vector<float> values(static_cast<size_t>(frames) * bins);
  pool.parallel_for(static_cast<size_t>(frames), [&](size_t frame) {
    made.make(static_cast<int64_t>(frame), std::span(values).subspan(frame * bins, bins));
  });
  return values;
}

}  // namespace ferry::media
