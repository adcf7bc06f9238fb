#include "converters/blocks/longrope.h"

#include <fmt/format.h>

#include <cmath>

namespace ferry::converters {
namespace {

constexpr FloatRange kFactorRange = {1e-6, 1e6};

Result<std::vector<double>> read_factors(const JsonFields& rope, std::string_view key,
                                         int64_t wanted) {
  auto list = FERRY_TRY(rope.numbers(key, kFactorRange));
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
  const auto factor = FERRY_TRY(rope.number("factor", kFactorRange)).value_or(positions / trained);
  const auto attention = FERRY_TRY(rope.number("attention_factor", kFactorRange));
  const double suggested =
      factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(trained));
  out.attention_factor = attention.value_or(suggested);
  return {};
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
      can_tell
          ? std::string("for prompts of any length, but not for text that grows beyond it")
          : fmt::format("up to it (for longer prompts too with --prefill-length {})", limit + 1));
}

}  // namespace ferry::converters
