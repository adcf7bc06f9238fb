#include "media/usm_mel.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "media/spectrum.h"

namespace ferry::media {
namespace {

// Makes the frames of a sound one by one.
class UsmFrames {
 public:
  UsmFrames(std::span<const float> samples, const UsmMelSettings& settings)
      : samples_(samples),
        settings_(settings),
        transform_(settings.window),
        filters_(htk_mel_filters(settings.mel_bins, settings.window, settings.rate,
                                 settings.least_hz, settings.most_hz)) {
    for (int64_t i = 0; i < settings.frame; ++i) {
      const double angle =
          2.0 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(settings.frame);
      hann_.push_back(static_cast<float>(0.5 - 0.5 * std::cos(angle)));
    }
  }

  void make(int64_t frame, std::span<float> out) const {
    const auto length = static_cast<size_t>(settings_.window);
    std::vector<double> values = windowed(frame);
    std::vector<Transform::Complex> spectrum(length), scratch;
    transform_.run(values.data(), spectrum.data(), scratch);
    for (size_t bin = 0; bin <= length / 2; ++bin) values[bin] = std::abs(spectrum[bin]);
    for (size_t mel = 0; mel < filters_.size(); ++mel) {
      double sum = 0.0;
      for (size_t i = 0; i < filters_[mel].weights.size(); ++i) {
        sum += filters_[mel].weights[i] * values[filters_[mel].first + i];
      }
      double value = std::log(sum + settings_.floor);
      if (!settings_.means.empty()) value -= settings_.means[mel];
      if (!settings_.deviations.empty()) value /= settings_.deviations[mel];
      out[mel] = static_cast<float>(value);
    }
  }

 private:
  // Returns a sample by its place behind the zeros.
  float sample(int64_t at) const {
    at -= settings_.frame / 2;
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
