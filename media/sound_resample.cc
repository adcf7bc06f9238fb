#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "media/sound.h"

namespace ferry::media {
namespace {

constexpr double kZeroCrossings = 6.0, kRolloff = 0.99;
constexpr int64_t kBlock = 4096;  // outputs of a task

// The coefficients of one phase: output f * to + phase is the sum of coefficient k times input
// f * from + first + k.
struct Phase {
  int64_t first = 0;
  std::vector<double> taps = {};
};

// `from` and `to` have no common divisor.
Phase make_phase(int64_t phase, int64_t from, int64_t to) {
  const auto wide = static_cast<double>(from);
  const double base = static_cast<double>(std::min(from, to)) * kRolloff;
  const double center = static_cast<double>(phase) / static_cast<double>(to) * wide;
  const double reach = kZeroCrossings * wide / base;
  Phase out;
  out.first = static_cast<int64_t>(std::ceil(center - reach));
  const auto last = static_cast<int64_t>(std::floor(center + reach));
  for (int64_t k = out.first; k <= last; ++k) {
    const double t = (static_cast<double>(k) - center) / wide * base;
    const double angle = t * std::numbers::pi;
    const double cosine = std::cos(angle / kZeroCrossings / 2);
    const double sinc = angle == 0.0 ? 1.0 : std::sin(angle) / angle;
    out.taps.push_back(sinc * cosine * cosine * base / wide);
  }
  return out;
}

}  // namespace

std::vector<float> at_rate(std::span<const float> samples, int64_t rate, int64_t new_rate,
                           ThreadPool& pool) {
  if (rate == new_rate) return {samples.begin(), samples.end()};
  const int64_t common = std::gcd(rate, new_rate);
  const int64_t from = rate / common, to = new_rate / common;
  std::vector<Phase> phases(static_cast<size_t>(to));
  pool.parallel_for(phases.size(),
                    [&](size_t p) { phases[p] = make_phase(static_cast<int64_t>(p), from, to); });
  const int64_t length = std::ssize(samples);
  std::vector<float> out(static_cast<size_t>((length * to + from - 1) / from));
  const int64_t total = std::ssize(out);
  pool.parallel_for(static_cast<size_t>((total + kBlock - 1) / kBlock), [&](size_t block) {
    const int64_t begin = static_cast<int64_t>(block) * kBlock;
    for (int64_t i = begin; i < std::min(total, begin + kBlock); ++i) {
      const Phase& phase = phases[static_cast<size_t>(i % to)];
      const int64_t first = i / to * from + phase.first;
      const int64_t skipped = std::max<int64_t>(0, -first);
      const int64_t end = std::min(std::ssize(phase.taps), length - first);
      double sum = 0.0;
      for (int64_t k = skipped; k < end; ++k) {
        sum += phase.taps[static_cast<size_t>(k)] *
               static_cast<double>(samples[static_cast<size_t>(first + k)]);
      }
      out[static_cast<size_t>(i)] = static_cast<float>(sum);
    }
  });
  return out;
}

}  // namespace ferry::media
