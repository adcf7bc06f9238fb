#include "media/log_mel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "media/spectrum.h"

namespace ferry::media {
namespace {

using Complex = Transform::Complex;

constexpr double kFloor = 1e-10;
constexpr float kRange = 8.0F;

// Returns the sample at `at`, mirrored at both ends.
double mirrored(std::span<const float> samples, int64_t at) {
  const int64_t last = std::ssize(samples) - 1;
  if (at < 0) at = -at;
  if (at > last) at = 2 * last - at;
  return static_cast<double>(samples[static_cast<size_t>(at)]);
}

}  // namespace

std::vector<float> one_chunk(std::span<const float> samples, const LogMelSettings& settings) {
  const auto length = static_cast<size_t>(settings.chunk_samples());
  std::vector<float> chunk(
      samples.begin(),
      samples.begin() + std::min<int64_t>(std::ssize(samples), settings.chunk_samples()));
  chunk.resize(length, settings.padding);
  return chunk;
}

int64_t window_count(int64_t samples, const LogMelSettings& settings) {
  const int64_t chunk = settings.chunk_samples();
  return std::max<int64_t>(1, (samples + chunk - 1) / chunk);
}

Features all_windows(std::vector<float> samples, const LogMelSettings& settings, ThreadPool& pool) {
  const int64_t chunk = settings.chunk_samples(), width = settings.chunk_frames();
  const int64_t count = window_count(std::ssize(samples), settings);
  samples.resize(static_cast<size_t>(count * chunk), settings.padding);
  const Features all = log_mel(samples, settings, pool);
  Features out{all.mel_bins, all.frames, {}};
  out.values.reserve(all.values.size());
  for (int64_t window = 0; window < count; ++window) {
    for (int64_t mel = 0; mel < all.mel_bins; ++mel) {
      const auto from = all.values.begin() + mel * all.frames + window * width;
      out.values.insert(out.values.end(), from, from + width);
    }
  }
  return out;
}

Features log_mel(std::span<const float> samples, const LogMelSettings& settings, ThreadPool& pool) {
  const int64_t length = settings.window;
  const Transform transform(length);
  const std::vector<MelFilter> filters =
      mel_filters(settings.mel_bins, settings.window, settings.rate);
  std::vector<double> window;
  for (int64_t i = 0; i < length; ++i) {
    const double angle =
        2.0 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(length);
    window.push_back(0.5 - 0.5 * std::cos(angle));
  }
  Features out{settings.mel_bins, std::ssize(samples) / settings.hop, {}};
  out.values.resize(static_cast<size_t>(out.mel_bins * out.frames));
  pool.parallel_for(static_cast<size_t>(out.frames), [&](size_t frame) {
    std::vector<double> input(static_cast<size_t>(length));
    std::vector<Complex> spectrum(static_cast<size_t>(length)), scratch;
    const int64_t start = static_cast<int64_t>(frame) * settings.hop - length / 2;
    for (int64_t i = 0; i < length; ++i) {
      const auto at = static_cast<size_t>(i);
      input[at] = mirrored(samples, start + i) * window[at];
    }
    transform.run(input.data(), spectrum.data(), scratch);
    for (int64_t bin = 0; bin <= length / 2; ++bin) {
      // The spectrum of the reference is complex64.
      const Complex& value = spectrum[static_cast<size_t>(bin)];
      const double magnitude = std::hypot(static_cast<double>(static_cast<float>(value.real())),
                                          static_cast<double>(static_cast<float>(value.imag())));
      input[static_cast<size_t>(bin)] = magnitude * magnitude;
    }
    for (size_t m = 0; m < filters.size(); ++m) {
      const double sum = filters[m].add(input);
      out.values[m * static_cast<size_t>(out.frames) + frame] =
          static_cast<float>(std::log10(std::max(kFloor, sum)));
    }
  });
  float most = -std::numeric_limits<float>::infinity();
  for (const float value : out.values) most = std::max(most, value);
  for (float& value : out.values) value = (std::max(value, most - kRange) + 4.0F) / 4.0F;
  return out;
}

}  // namespace ferry::media
