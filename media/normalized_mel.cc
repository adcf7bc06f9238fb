#include "media/normalized_mel.h"

#include <cmath>
#include <numbers>

#include "media/spectrum.h"

namespace ferry::media {
namespace {

constexpr double kZeroGuard = 0x1p-24, kEpsilon = 1e-5;

std::vector<double> emphasized(std::span<const float> samples, std::optional<double> factor) {
  std::vector<double> out(samples.begin(), samples.end());
  if (!factor) return out;
  for (size_t i = out.size(); i-- > 1;) out[i] -= *factor * out[i - 1];
  return out;
}

std::vector<double> symmetric_hann(int64_t length) {
  if (length == 1) return {1.0};
  std::vector<double> window;
  for (int64_t i = 0; i < length; ++i) {
    const double angle =
        2.0 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(length - 1);
    window.push_back(0.5 - 0.5 * std::cos(angle));
  }
  return window;
}

// Makes the frames of a sound one by one.
class NormalizedFrames {
 public:
  NormalizedFrames(std::span<const double> samples, const NormalizedMelSettings& settings)
      : samples_(samples),
        settings_(settings),
        transform_(settings.window),
        filters_(mel_filters(settings.mel_bins, settings.window, settings.rate, /*in_f32=*/true)),
        hann_(symmetric_hann(settings.inner_window)) {}

  void make(int64_t frame, std::span<double> out) const {
    const auto length = static_cast<size_t>(settings_.window);
    std::vector<double> values = windowed(frame);
    std::vector<Transform::Complex> spectrum(length), scratch;
    transform_.run(values.data(), spectrum.data(), scratch);
    for (size_t bin = 0; bin <= length / 2; ++bin) values[bin] = std::norm(spectrum[bin]);
    for (size_t mel = 0; mel < filters_.size(); ++mel) {
      out[mel] = std::log(filters_[mel].add(values, kZeroGuard));
    }
  }

 private:
  std::vector<double> windowed(int64_t frame) const {
    std::vector<double> values(static_cast<size_t>(settings_.window));
    const int64_t first = (settings_.window - settings_.inner_window) / 2;
    const int64_t start = frame * settings_.hop - settings_.window / 2 + first;
    for (int64_t i = 0; i < settings_.inner_window; ++i) {
      const int64_t at = start + i;
      if (at < 0 || at >= std::ssize(samples_)) continue;
      values[static_cast<size_t>(first + i)] =
          samples_[static_cast<size_t>(at)] * hann_[static_cast<size_t>(i)];
    }
    return values;
  }

  std::span<const double> samples_;
  const NormalizedMelSettings& settings_;
  const Transform transform_;
  const std::vector<MelFilter> filters_;
  const std::vector<double> hann_;
};

// Gives each bin of values [frames,bins] a mean of 0 and a deviation of 1. The values of a bin that
// is the same in all frames, as in silence, are 0.
void normalize_bins(std::span<double> values, int64_t frames, int64_t bins) {
  for (int64_t bin = 0; bin < bins; ++bin) {
    const auto value = [&](int64_t frame) -> double& {
      return values[static_cast<size_t>(frame * bins + bin)];
    };
    const double first = value(0);
    double sum = 0.0, squares = 0.0;
    for (int64_t i = 0; i < frames; ++i) sum += value(i) - first;
    const double mean = first + sum / static_cast<double>(frames);
    for (int64_t i = 0; i < frames; ++i) {
      value(i) -= mean;
      squares += value(i) * value(i);
    }
    const double deviation = std::sqrt(squares / static_cast<double>(frames - 1)) + kEpsilon;
    for (int64_t i = 0; i < frames; ++i) value(i) /= deviation;
  }
}

}  // namespace

std::vector<float> normalized_mel(std::span<const float> samples,
                                  const NormalizedMelSettings& settings, ThreadPool& pool) {
  const std::vector<double> sound = emphasized(samples, settings.preemphasis);
  const NormalizedFrames made(sound, settings);
  const int64_t frames = settings.frames(std::ssize(samples));
  const auto bins = static_cast<size_t>(settings.mel_bins);
  std::vector<double> values(static_cast<size_t>(frames) * bins);
  pool.parallel_for(static_cast<size_t>(frames), [&](size_t frame) {
    made.make(static_cast<int64_t>(frame), std::span(values).subspan(frame * bins, bins));
  });
  normalize_bins(values, frames, settings.mel_bins);
  return {values.begin(), values.end()};
}

}  // namespace ferry::media
