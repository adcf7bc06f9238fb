#include "dialects/gguf/model/rope_factors.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "converters/blocks/rope.h"

namespace ferry::converters {
namespace {

constexpr double kFactorTolerance = 1e-5;
constexpr double kLow = 1.0, kHigh = 4.0;  // parameters of all Llama models with scaling
constexpr int kMaxOriginalBits = 24;
// Any one of a model's own factors determines the length; several are tried, because they are
// rounded.
constexpr size_t kMaxCandidates = 64;

bool same(double a, double b) { return std::abs(a - b) <= kFactorTolerance * std::max(a, b); }

RopeConfig llama3(double theta, double factor, double low, double high, int64_t original) {
  return {.type = RopeConfig::Type::kLlama3,
          .theta = theta,
          .factor = factor,
          .low_freq_factor = low,
          .high_freq_factor = high,
          .original_max_positions = original,
          .factors = {},
          .long_factors = {}};
}

// A frequency between those that are kept and those that are divided by the whole factor: its wave
// length, and how much of it is kept (0 to 1).
struct Between {
  double wave, smooth;
};

std::vector<Between> frequencies_between(double theta, double factor,
                                         const std::vector<float>& factors) {
  std::vector<Between> found;
  for (size_t i = 0; i < factors.size(); ++i) {
    const double f = factors[i];
    if (same(f, 1.0) || same(f, factor)) continue;
    const double exponent = static_cast<double>(i) / static_cast<double>(factors.size());
    found.push_back({2 * std::numbers::pi * std::pow(theta, exponent),
                     (1.0 / f - 1.0 / factor) / (1.0 - 1.0 / factor)});
  }
  return found;
}

}  // namespace

bool gives_rope_factors(const RopeConfig& rope, const std::vector<float>& factors) {
  RopeConfig plain = rope;
  plain.type = RopeConfig::Type::kDefault;
  plain.factors.clear();
  const auto rotary = static_cast<int64_t>(2 * factors.size());
  const std::vector<float> scaled = rope_inverse_frequencies(rope, rotary);
  const std::vector<float> unscaled = rope_inverse_frequencies(plain, rotary);
  for (size_t i = 0; i < factors.size(); ++i) {
    if (!same(double{unscaled[i]} / scaled[i], factors[i])) return false;
  }
  return true;
}

std::optional<RopeConfig> recover_llama3_scaling(double theta, const std::vector<float>& factors) {
  if (factors.empty()) return std::nullopt;
  for (const float f : factors) {
    if (!(f >= 1.0f && f <= 1e6f)) return std::nullopt;
  }
  const double factor = *std::ranges::max_element(factors);
  const std::vector<Between> between = frequencies_between(theta, factor, factors);
  std::vector<RopeConfig> candidates;
  const size_t step = between.size() / kMaxCandidates + 1;
  for (size_t i = 0; i < between.size(); i += step) {
    const Between& b = between[i];
    const double original = b.wave * (kLow + b.smooth * (kHigh - kLow));
    if (original < 1 || original > INT32_MAX) continue;
    candidates.push_back(llama3(theta, factor, kLow, kHigh, std::llround(original)));
  }
  // Without a factor in between many lengths give equal factors. Models have powers of two.
  for (int bits = 1; between.empty() && bits <= kMaxOriginalBits; ++bits) {
    candidates.push_back(llama3(theta, factor, kLow, kHigh, int64_t{1} << bits));
  }
  if (between.size() >= 2) {
    // smooth = (original / wave - low) / (high - low) is a line over 1 / wave.
    const Between a = between.front(), b = between.back();
    const double slope = (a.smooth - b.smooth) / (1 / a.wave - 1 / b.wave);
    const double low = slope / a.wave - a.smooth;     // in units of high - low
    const double original = std::round(slope / low);  // where low is 1
    if (slope > 0 && low > 0 && original >= 1 && original <= INT32_MAX) {
      candidates.push_back(llama3(theta, factor, low * original / slope,
                                  (1 + low) * original / slope, static_cast<int64_t>(original)));
    }
  }
  for (const RopeConfig& candidate : candidates) {
    if (gives_rope_factors(candidate, factors)) return candidate;
  }
  return std::nullopt;
}

}  // namespace ferry::converters
