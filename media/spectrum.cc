#include "media/spectrum.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ferry::media {
namespace {

constexpr double kGreatestHz = 8000.0;

// Slaney's scale: linear up to 1000 Hz, logarithmic above.
double hz_of(double mel) {
  if (mel < 15.0) return 200.0 * mel / 3.0;
  return 1000.0 * std::exp(std::log(6.4) / 27.0 * (mel - 15.0));
}
double mel_of(double hz) {
  if (hz < 1000.0) return 3.0 * hz / 200.0;
  return 15.0 + std::log(hz / 1000.0) * (27.0 / std::log(6.4));
}

}  // namespace

Transform::Transform(int64_t length) : length_(length) {
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

void Transform::run(const double* in, Complex* out, std::vector<Complex>& scratch) const {
  scratch.resize(static_cast<size_t>(length_));
  step(in, 1, out, length_, 0, scratch.data());
}

void Transform::step(const double* in, int64_t stride, Complex* out, int64_t count, size_t level,
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

namespace {

// The frequencies in Hz where the triangles of filters begin, have their tips and end.
using Edges = std::vector<double>;

// Calls weigh(m, weight of the triangle) for every frequency of each filter.
template <class Weigh>
std::vector<MelFilter> triangles(const Edges& edges, int64_t window, int64_t rate, Weigh weigh) {
  const int64_t bins = 1 + window / 2;
  const double spacing = static_cast<double>(rate / 2) / static_cast<double>(bins - 1);  // Hz
  std::vector<MelFilter> filters;
  for (size_t m = 0; m + 2 < edges.size(); ++m) {
    MelFilter& filter = filters.emplace_back();
    for (int64_t bin = 0; bin < bins; ++bin) {
      const double hz = spacing * static_cast<double>(bin);
      const double up = (hz - edges[m]) / (edges[m + 1] - edges[m]);
      const double down = (edges[m + 2] - hz) / (edges[m + 2] - edges[m + 1]);
      const double weight = weigh(m, std::max(0.0, std::min(down, up)));
      if (weight == 0.0) continue;
      if (filter.weights.empty()) filter.first = static_cast<size_t>(bin);
      filter.weights.push_back(weight);
    }
  }
  return filters;
}

}  // namespace

std::vector<MelFilter> mel_filters(int64_t mel_bins, int64_t window, int64_t rate, bool in_f32) {
  const double top = mel_of(kGreatestHz);
  Edges edges;
  for (int64_t i = 0; i < mel_bins + 2; ++i) {
    edges.push_back(hz_of(top / static_cast<double>(mel_bins + 1) * static_cast<double>(i)));
  }
  edges.back() = hz_of(top);
  return triangles(edges, window, rate, [&](size_t m, double weight) {
    if (in_f32) weight = static_cast<double>(static_cast<float>(weight));
    weight *= 2.0 / (edges[m + 2] - edges[m]);
    return in_f32 ? static_cast<double>(static_cast<float>(weight)) : weight;
  });
}

std::vector<MelFilter> htk_mel_filters(int64_t mel_bins, int64_t window, int64_t rate, double least,
                                       double most) {
  const auto mel = [](double hz) { return 2595.0 * std::log10(1.0 + hz / 700.0); };
  const double bottom = mel(least), top = mel(most);
  const double step = (top - bottom) / static_cast<double>(mel_bins + 1);
  Edges edges;
  for (int64_t i = 0; i < mel_bins + 2; ++i) {
    const double at = i == mel_bins + 1 ? top : bottom + static_cast<double>(i) * step;
    edges.push_back(700.0 * (std::pow(10.0, at / 2595.0) - 1.0));
  }
  return triangles(edges, window, rate, [](size_t, double weight) { return weight; });
}

std::vector<MelFilter> htk_mel_filters_in_f32(int64_t mel_bins, int64_t window, int64_t rate) {
  const int64_t points = mel_bins + 2, bins = 1 + window / 2;
  const auto number = [](int64_t value) { return static_cast<float>(value); };
  const auto top =
      static_cast<float>(2595.0 * std::log10(1.0 + static_cast<double>(rate / 2) / 700.0));
  const float step = top / number(points - 1), spacing = number(rate / 2) / number(bins - 1);
  std::vector<float> edges;
  for (int64_t i = 0; i < points; ++i) {
    const float mel = i < points / 2 ? step * number(i) : top - step * number(points - 1 - i);
    const auto power = static_cast<float>(std::pow(10.0, static_cast<double>(mel / 2595.0F)));
    edges.push_back(700.0F * (power - 1.0F));
  }
  std::vector<MelFilter> filters(static_cast<size_t>(mel_bins));
  for (size_t m = 0; m < filters.size(); ++m) {
    for (int64_t bin = 0; bin < bins; ++bin) {
      const float hz = bin < bins / 2 ? spacing * number(bin)
                                      : number(rate / 2) - spacing * number(bins - 1 - bin);
      const float down = (hz - edges[m]) / (edges[m + 1] - edges[m]);
      const float up = (edges[m + 2] - hz) / (edges[m + 2] - edges[m + 1]);
      const float weight = std::max(0.0F, std::min(down, up));
      if (!(weight > 0.0F)) continue;
      if (filters[m].weights.empty()) filters[m].first = static_cast<size_t>(bin);
      filters[m].weights.push_back(static_cast<double>(weight));
    }
  }
  return filters;
}

}  // namespace ferry::media
