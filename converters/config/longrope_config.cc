// The keys of longrope (Phi-3, Phi-4-mini).
// Source: transformers, modeling_rope_utils.py, _compute_longrope_parameters.
#include <fmt/format.h>

#include <cmath>

#include "converters/config/config_parts.h"

namespace ferry::converters {
namespace {

constexpr FloatRange kFactors = {1e-6, 1e6};

Result<std::vector<double>> read_factors(const JsonFields& rope, std::string_view key,
                                         int64_t wanted) {
  auto list = FERRY_TRY(rope.numbers(key, kFactors));
  if (!list) return rope.bad(key, "is missing");
  if (std::ssize(*list) == wanted) return *std::move(list);
  return rope.bad(
      key, fmt::format("has {} numbers for {} pairs of rotary dimensions", list->size(), wanted));
}

}  // namespace

Status read_longrope(const JsonFields& rope, ModelConfig& config) {
  RopeConfig& out = config.rope;
  if (out.original_max_positions < 2) {  // its logarithm is a divisor
    return rope.bad("original_max_position_embeddings", "is 1");
  }
  const int64_t pairs = config.rotary_dim() / 2;
  out.factors = FERRY_TRY(read_factors(rope, "short_factor", pairs));
  out.long_factors = FERRY_TRY(read_factors(rope, "long_factor", pairs));

  const auto positions = static_cast<double>(config.max_positions);
  const auto trained = static_cast<double>(out.original_max_positions);
  const auto factor = FERRY_TRY(rope.number("factor", kFactors)).value_or(positions / trained);
  const auto attention = FERRY_TRY(rope.number("attention_factor", kFactors));
  const double suggested =
      factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(trained));
  out.attention_factor = attention.value_or(suggested);
  return {};
}

}  // namespace ferry::converters
