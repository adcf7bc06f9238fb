#include "converters/blocks/relative_bias.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace ferry::converters {
namespace {

// Makes the literal of the buckets of the distances from 1 - positions on: f32 [2 positions - 1,
// 1].
graph::Literal bucket_literal(const RelativeBiasConfig& config, bool two_way, int64_t positions) {
  std::vector<float> rows;
  for (int64_t distance = 1 - positions; distance < positions; ++distance) {
    rows.push_back(static_cast<float>(distance_bucket(config, two_way, distance)));
  }
  return graph::literal_of(fmt::format("buckets:{}:{}:{}:{}", positions, config.buckets,
                                       config.farthest, two_way ? "both" : "before"),
                           std::move(rows));
}

// Returns the bucket of each query and key: i64 [T, keys].
ValueId bucket_rows(GraphBuilder& b, const DecoderContext& c, const KeyRange& range) {
  const int64_t most = c.options.context_length;
  const ValueId table = b.literal(DType::kF32, {2 * most - 1, 1},
                                  bucket_literal(*c.config.relative_bias, c.config.two_way, most));
  const ValueId numbers = call_positions(b, c);
  const ValueId rows = b.unsqueeze(numbers, 1);
  const bool whole = c.options.style == ProgramStyle::kEncoder;
  const ValueId keys = whole ? numbers : b.arange(range.start, c.end_pos, range.keys);
  const ValueId columns = whole ? b.unsqueeze(keys, 0) : keys;
  const ValueId distance = b.sub(rows, columns);
  const ValueId place = b.add(distance, int_scalar(b, most - 1));
  return b.to(b.select(b.embedding(table, place), 2, 0), DType::kI64);
}

// Returns what the table adds to the scores, with the mask: f32 [heads, 1, T, keys].
ValueId bias_of(GraphBuilder& b, const DecoderContext& c, const std::string& table, ValueId rows,
                ValueId mask) {
  const ModelConfig& config = c.config;
  const ValueId weight =
      b.weight_f32(table, {features(config.relative_bias->buckets), heads(config.num_heads)});
  const ValueId bias = b.unsqueeze(b.permute(b.embedding(weight, rows), {2, 0, 1}), 1);
  return mask.valid() ? b.add(bias, mask) : bias;
}

}  // namespace

// The reference computes in f32.
int64_t distance_bucket(const RelativeBiasConfig& config, bool two_way, int64_t distance) {
  const int64_t of_side = two_way ? config.buckets / 2 : config.buckets;
  const int64_t exact = of_side / 2;
  const int64_t side = two_way && distance < 0 ? of_side : 0;
  const int64_t length = two_way ? std::abs(distance) : std::max<int64_t>(distance, 0);
  if (length < exact) return side + length;
  const auto ratio = static_cast<float>(length) / static_cast<float>(exact);
  const auto logarithm = static_cast<float>(std::log(static_cast<double>(ratio)));
  const auto whole = static_cast<float>(
      std::log(static_cast<double>(config.farthest) / static_cast<double>(exact)));
  const float steps = logarithm / whole * static_cast<float>(of_side - exact);
  return side + std::min(exact + static_cast<int64_t>(steps), of_side - 1);
}

void add_relative_bias(GraphBuilder& b, DecoderContext& c) {
  if (!c.full.range) {
    c.full.range.emplace();
    c.full.range->keys = c.tokens;
  }
  KeyRange& range = *c.full.range;
  const ValueId rows = bucket_rows(b, c, range);
  if (c.config.relative_bias->by_layer) {
    b.name(rows, "bias_rows");
    c.bias_rows = rows;
    return;
  }
  range.mask = bias_of(b, c, "relative_bias.weight", rows, range.mask);
  b.name(range.mask, "relative_bias");
}

ValueId layer_mask(GraphBuilder& b, const DecoderContext& c, int64_t layer) {
  const ValueId mask = c.kind_of(layer).range->mask;
  if (!c.bias_rows.valid()) return mask;
  return bias_of(b, c, layer_name(layer, "relative_bias.weight"), c.bias_rows, mask);
}

}  // namespace ferry::converters
