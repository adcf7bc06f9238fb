#include "media/paired_mel.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "media/spectrum.h"

namespace ferry::media {
namespace {

constexpr double kLeastPower = 1e-10, kRangeOfLogs = 8.0;

// Makes the frames of a sound one by one.
class PairedFrames {
 public:
  PairedFrames(std::span<const float> samples, const PairedMelSettings& settings)
      : samples_(samples),
        settings_(settings),
        transform_(settings.window),
        filters_(htk_mel_filters_in_f32(settings.mel_bins, settings.window, settings.rate)) {
    for (int64_t i = 0; i < settings.inner_window; ++i) {
      const double turn = static_cast<double>(i) / static_cast<double>(settings.inner_window);
      hann_.push_back(0.5 - 0.5 * std::cos(2.0 * std::numbers::pi * turn));
    }
  }

  void make(int64_t frame, std::span<double> out) const {
    const auto length = static_cast<size_t>(settings_.window);
    std::vector<double> values = windowed(frame);
    std::vector<Transform::Complex> spectrum(length), scratch;
    transform_.run(values.data(), spectrum.data(), scratch);
    for (size_t bin = 0; bin <= length / 2; ++bin) values[bin] = std::norm(spectrum[bin]);
    for (size_t mel = 0; mel < filters_.size(); ++mel) {
      out[mel] = std::log10(std::max(filters_[mel].add(values), kLeastPower));
    }
  }

 private:
  // Returns a sample by its place; the ends are mirrored.
  double sample(int64_t at) const {
    const int64_t last = std::ssize(samples_) - 1;
    if (at < 0) at = -at;
    if (at > last) at = 2 * last - at;
    return static_cast<double>(samples_[static_cast<size_t>(at)]);
  }
  std::vector<double> windowed(int64_t frame) const {
    std::vector<double> values(static_cast<size_t>(settings_.window));
    const int64_t first = (settings_.window - settings_.inner_window) / 2;
    const int64_t start = frame * settings_.hop - settings_.window / 2 + first;
    for (int64_t i = 0; i < settings_.inner_window; ++i) {
      values[static_cast<size_t>(first + i)] = sample(start + i) * hann_[static_cast<size_t>(i)];
    }
    return values;
  }

  std::span<const float> samples_;
  const PairedMelSettings& settings_;
  const Transform transform_;
  const std::vector<MelFilter> filters_;
  std::vector<double> hann_;
};

}  // namespace

std::vector<float> paired_mel(std::span<const float> samples, const PairedMelSettings& settings,
                              ThreadPool& pool) {
  const PairedFrames made(samples, settings);
  const int64_t frames = settings.frames(std::ssize(samples));
  const auto bins = static_cast<size_t>(settings.mel_bins);
  std::vector<double> values(static_cast<size_t>(frames) * bins);
  pool.parallel_for(static_cast<size_t>(frames), [&](size_t frame) {
    made.make(static_cast<int64_t>(frame), std::span(values).subspan(frame * bins, bins));
  });
  // The loudest frame may be the one that is left out.
  const double least = *std::ranges::max_element(values) - kRangeOfLogs;
  std::vector<float> out;
  out.reserve(values.size());
  values.resize(static_cast<size_t>(settings.pairs(std::ssize(samples))) * 2 * bins);
  for (const double value : values) {
    out.push_back(static_cast<float>(std::max(value, least) / 4.0 + 1.0));
  }
  return out;
}

}  // namespace ferry::media
