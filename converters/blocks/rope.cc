#include "converters/blocks/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace ferry::converters {
namespace {

// Low frequencies are divided by the factor, high ones are kept, those between are interpolated.
float llama3_frequency(const RopeConfig& rope, float frequency) {
  const auto factor = static_cast<float>(rope.factor);
  const auto original = static_cast<double>(rope.original_max_positions);
  const float wave = static_cast<float>(2 * std::numbers::pi) / frequency;
  if (wave > static_cast<float>(original / rope.low_freq_factor)) return frequency / factor;
  if (wave < static_cast<float>(original / rope.high_freq_factor)) return frequency;
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto range = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  const float smooth = (static_cast<float>(original) / wave - low) / range;
  return (1.0F - smooth) * frequency / factor + smooth * frequency;
}

// The pairs between which yarn interpolates from the plain to the scaled frequencies.
struct YarnRange {
  double low, high;
};

YarnRange yarn_range(const RopeConfig& rope, int64_t rotary_dim) {
  const auto dim = static_cast<double>(rotary_dim);
  // Returns the pair of dimensions that makes `turns` turns within the original length.
  const auto pair_of = [&](double turns) {
    const double length = static_cast<double>(rope.original_max_positions);
    return dim * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(rope.theta));
  };
  YarnRange range{pair_of(rope.beta_fast), pair_of(rope.beta_slow)};
  if (rope.truncate) range = {std::floor(range.low), std::ceil(range.high)};
  range = {std::max(range.low, 0.0), std::min(range.high, dim - 1)};
  if (range.low == range.high) range.high += 0.001;
  return range;
}

float yarn_frequency(const RopeConfig& rope, const YarnRange& range, int64_t pair, float power) {
  const float along = (static_cast<float>(pair) - static_cast<float>(range.low)) /
                      static_cast<float>(range.high - range.low);
  const float plain_part = 1.0F - std::clamp(along, 0.0F, 1.0F);
  const float slowed = 1.0F / (static_cast<float>(rope.factor) * power);
  return slowed * (1.0F - plain_part) + 1.0F / power * plain_part;
}

}  // namespace

// Powers are computed in f64 and rounded to f32, so that they do not depend on the f32 functions of
// a C library. All other operations are f32, in the order of the reference.
std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, int64_t rotary_dim) {
  const auto theta = static_cast<double>(static_cast<float>(rope.theta));
  const bool yarn = rope.type == RopeConfig::Type::kYarn;
  const bool proportional = rope.type == RopeConfig::Type::kProportional;
  const int64_t turned = proportional
                             ? 2 * static_cast<int64_t>(rope.partial_rotary_factor *
                                                        static_cast<double>(rotary_dim) / 2)
                             : rotary_dim;
  const YarnRange range = yarn ? yarn_range(rope, rotary_dim) : YarnRange{};
  std::vector<float> frequencies;
  for (int64_t i = 0; i < rotary_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(rotary_dim);
    auto power = static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    if (!rope.factors.empty()) {
      power *= static_cast<float>(rope.factors[static_cast<size_t>(i / 2)]);
    }
    float frequency = 1.0F / power;
    if (i >= turned) frequency = 0.0F;
    if (rope.type == RopeConfig::Type::kLinear || proportional)
      frequency /= static_cast<float>(rope.factor);
    if (rope.type == RopeConfig::Type::kLlama3) frequency = llama3_frequency(rope, frequency);
    if (yarn) frequency = yarn_frequency(rope, range, i / 2, power);
    frequencies.push_back(frequency);
  }
  return frequencies;
}

std::optional<int64_t> longrope_switch(const RopeConfig& rope, const BuildOptions& options) {
  if (rope.type != RopeConfig::Type::kLongRope || rope.factors == rope.long_factors ||
      options.context_length <= rope.original_max_positions) {
    return std::nullopt;
  }
  return rope.original_max_positions;
}

std::string longrope_note(int64_t limit, const BuildOptions& options) {
  const bool can_tell = options.prefill_length > limit;
  return fmt::format(
      "RoPE (longrope): a sequence of more than {} tokens has other factors from its first token "
      "on; ferry follows the length of the whole sequence, a runner that gives plain positions is "
      "right {}",
      limit,
      can_tell ? std::string("for prompts of any length, but not for text that grows beyond it")
               : fmt::format("up to it (for longer prompts too with a prefill length of {})",
                             limit + 1));
}

}  // namespace ferry::converters
