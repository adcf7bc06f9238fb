#include "converters/blocks/alibi.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "converters/blocks/static_ports.h"
#include "core/dtype.h"

namespace ferry::converters {
namespace {

float rounded(float value) { return bf16_to_f32(f32_to_bf16(value)); }

// Returns what a head with this slope adds to the score of a key at `position`.
float alibi_value(const ModelConfig& config, float slope, uint64_t position) {
  if (config.number(kAlibi) != kRoundedAlibi) return slope * static_cast<float>(position);
  const float product = rounded(rounded(slope) * static_cast<float>(position));
  return product / std::sqrt(static_cast<float>(config.head_dim));
}

// Makes the literal of these values: f32 [positions, heads].
graph::Literal alibi_literal(const ModelConfig& config, int64_t positions) {
  std::vector<float> slopes;
  for (int64_t head = 0; head < config.num_heads; ++head) {
    slopes.push_back(static_cast<float>(alibi_slope(head, config.num_heads)));
  }
  // A tile may begin and end inside a value.
  const auto fill = [config, slopes](uint64_t offset, std::span<std::byte> out) {
    const uint64_t first = offset / sizeof(float), skipped = offset % sizeof(float);
    std::vector<float> values((skipped + out.size() + sizeof(float) - 1) / sizeof(float));
    for (size_t i = 0; i < values.size(); ++i) {
      const uint64_t at = first + i;
      values[i] = alibi_value(config, slopes[at % slopes.size()], at / slopes.size());
    }
    std::ranges::copy(std::as_bytes(std::span(values)).subspan(skipped, out.size()), out.begin());
  };
  return {.key = fmt::format("alibi:{}", positions),
          .bytes = static_cast<uint64_t>(positions) * slopes.size() * sizeof(float),
          .fill = fill};
}

// Returns the differences of rows of keys [n, heads] and queries [T, heads] as f32 [kv heads, heads
// of each, T, n]. A softmax does not see what is taken from all scores of a query.
ValueId alibi_bias(GraphBuilder& b, const ModelConfig& config, ValueId of_keys,
                   ValueId of_queries) {
  const Dim keys = b.graph()[of_keys].shape[0], queries = b.graph()[of_queries].shape[0];
  const ValueId columns = b.unsqueeze(b.permute(of_keys, {1, 0}), 1);
  const ValueId rows = b.unsqueeze(b.permute(of_queries, {1, 0}), 2);
  const ValueId bias =
      b.view(b.sub(columns, rows),
             {heads(config.num_kv_heads), config.num_heads / config.num_kv_heads, queries, keys});
  b.name(bias, "alibi");
  return bias;
}

}  // namespace

// The heads beyond a power of two take every second slope of twice as many heads.
double alibi_slope(int64_t head, int64_t heads) {
  constexpr double kMost = 8.0;
  const auto power = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(heads)));
  const bool beyond = head >= power;
  const int64_t step = beyond ? 2 * (head - power) + 1 : head + 1;
  return std::exp2(-kMost * static_cast<double>(step) /
                   static_cast<double>(beyond ? 2 * power : power));
}

void add_alibi(GraphBuilder& b, DecoderContext& c) {
  const int64_t most = c.options.context_length;
  const ValueId table = b.literal(DType::kF32, {positions(most), heads(c.config.num_heads)},
                                  alibi_literal(c.config, most));
  if (c.ports != nullptr) {
    const ValueId own = b.select(b.embedding(table, c.ports->input_pos()), 0, 0);
    const int64_t cached = most - c.tokens.base;
    const ValueId keys = cached > 0 ? b.cat({b.slice(table, 0, 0, cached), own}, 0) : own;
    c.full.bias = alibi_bias(b, c.config, keys, own);
    return;
  }
  const ValueId queries = b.embedding(table, call_positions(b, c));
  const bool whole = c.options.style == ProgramStyle::kEncoder;
  const ValueId keys = whole ? queries : b.slice(table, 0, 0, c.end_pos, c.written);
  KeyRange& range = *c.full.range;
  const ValueId bias = alibi_bias(b, c.config, keys, queries);
  range.mask = range.mask.valid() ? b.add(bias, range.mask) : bias;
}

}  // namespace ferry::converters
