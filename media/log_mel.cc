#include "media/log_mel.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>

namespace ferry::media {
namespace {

using Complex = std::complex<double>;

constexpr double kFloor = 1e-10, kGreatestHz = 8000.0;
constexpr float kRange = 8.0F;

// A discrete Fourier transform by the prime factors of its length.
class Transform {
 public:
  explicit Transform(int64_t length) : length_(length) {
    for (int64_t k = 0; k < length; ++k) {
      const double angle =
          -2.0 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(length);
      roots_.emplace_back(std::cos(angle), std::sin(angle));
    }
    for (int64_t rest = length, factor = 2; rest > 1;) {
      if (rest % factor != 0) {
        factor += 1;
        continue;
      }
      factors_.push_back(factor);
      rest /= factor;
    }
  }

  // `in` and `out` have length_ elements.
  void run(const double* in, Complex* out, std::vector<Complex>& scratch) const {
    scratch.resize(static_cast<size_t>(length_));
    step(in, 1, out, length_, 0, scratch.data());
  }

 private:
  // Transforms in[0], in[stride], ... of `count` elements. Every `factor`-th element is a part of
  // its own, and the parts are joined by butterflies.
  void step(const double* in, int64_t stride, Complex* out, int64_t count, size_t level,
            Complex* scratch) const {
    if (count == 1) {
      out[0] = *in;
      return;
    }
    const int64_t factor = factors_[level];
    const int64_t part = count / factor;
    for (int64_t f = 0; f < factor; ++f) {
      step(in + f * stride, stride * factor, scratch + f * part, part, level + 1, out + f * part);
    }
    const int64_t scale = length_ / count;
    for (int64_t k = 0; k < count; ++k) {
      Complex sum = scratch[k % part];
      for (int64_t f = 1; f < factor; ++f) {
        const Complex& root = roots_[static_cast<size_t>(f * k % count * scale)];
        const Complex& value = scratch[f * part + k % part];
        sum += Complex(value.real() * root.real() - value.imag() * root.imag(),
                       value.real() * root.imag() + value.imag() * root.real());
      }
      out[k] = sum;
    }
  }

  int64_t length_;
  std::vector<Complex> roots_;
  std::vector<int64_t> factors_;
};

// Slaney's scale: linear up to 1000 Hz, logarithmic above.
double hz_of(double mel) {
  if (mel < 15.0) return 200.0 * mel / 3.0;
  return 1000.0 * std::exp(std::log(6.4) / 27.0 * (mel - 15.0));
}
double mel_of(double hz) {
  if (hz < 1000.0) return 3.0 * hz / 200.0;
  return 15.0 + std::log(hz / 1000.0) * (27.0 / std::log(6.4));
}

// The weights of one mel bin, from the frequency `first` on.
struct MelFilter {
  size_t first = 0;
  std::vector<double> weights = {};
};

std::vector<MelFilter> mel_filters(const LogMelSettings& settings) {
  const int64_t bins = 1 + settings.window / 2;
  const double top = mel_of(kGreatestHz);
  std::vector<double> edges;
  for (int64_t i = 0; i < settings.mel_bins + 2; ++i) {
    edges.push_back(
        hz_of(top / static_cast<double>(settings.mel_bins + 1) * static_cast<double>(i)));
  }
  edges.back() = hz_of(top);
  const double spacing =
      static_cast<double>(settings.rate / 2) / static_cast<double>(bins - 1);  // Hz
  std::vector<MelFilter> filters;
  for (size_t m = 0; m + 2 < edges.size(); ++m) {
    MelFilter& filter = filters.emplace_back();
    const double scale = 2.0 / (edges[m + 2] - edges[m]);
    for (int64_t bin = 0; bin < bins; ++bin) {
      const double hz = spacing * static_cast<double>(bin);
      const double up = (hz - edges[m]) / (edges[m + 1] - edges[m]);
      const double down = (edges[m + 2] - hz) / (edges[m + 2] - edges[m + 1]);
      const double weight = std::max(0.0, std::min(down, up)) * scale;
      if (weight == 0.0) continue;
      if (filter.weights.empty()) filter.first = static_cast<size_t>(bin);
      filter.weights.push_back(weight);
    }
  }
  return filters;
}

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

Features log_mel(std::span<const float> samples, const LogMelSettings& settings, ThreadPool& pool) {
  const int64_t length = settings.window;
  const Transform transform(length);
  const std::vector<MelFilter> filters = mel_filters(settings);
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
      double sum = 0.0;
      for (size_t i = 0; i < filters[m].weights.size(); ++i) {
        sum += filters[m].weights[i] * input[filters[m].first + i];
      }
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
