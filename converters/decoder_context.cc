#include "converters/decoder_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "converters/longrope.h"

// The order of nodes is part of the bytes of a program. No call here takes two arguments that
// append nodes: compilers differ in which they evaluate first.

namespace ferry {
namespace {

// Masked scores. Finite on purpose: a block of keys that is masked as a whole must not turn into
// NaN in a softmax that proceeds block by block, and exp(-65535 - maximum) is exactly zero in f32.
constexpr float kMasked = -65535.0F;

constexpr int64_t kToEnd = std::numeric_limits<int64_t>::max();

// cos or sin of position * inverse frequency, the frequencies twice side by side (half-split RoPE).
// The first half of a sine row is negated, so that x * cos + swapped(x) * sin turns every pair.
Literal rope_literal(const std::string& name, const RopeConfig& rope, int64_t rotary_dim,
                     int64_t positions, bool sine) {
  const std::vector<float> inverse = rope_inverse_frequencies(rope, rotary_dim);
  const auto scale = static_cast<float>(rope.attention_factor);
  const int64_t half = static_cast<int64_t>(inverse.size());
  Literal literal;
  literal.key = fmt::format("{}.{}.{}", name, sine ? "sin" : "cos", positions);
  literal.bytes = static_cast<uint64_t>(positions * 2 * half) * sizeof(float);
  literal.fill = [inverse, half, scale, sine](uint64_t offset, std::span<std::byte> out) {
    std::vector<float> row(static_cast<size_t>(2 * half));
    const std::span<const std::byte> bytes = std::as_bytes(std::span(row));
    for (uint64_t p = offset / bytes.size(); !out.empty(); ++p) {
      for (int64_t i = 0; i < half; ++i) {
        // The angle is rounded to f32, as the reference implementation computes it.
        const float angle = static_cast<float>(p) * inverse[static_cast<size_t>(i)];
        const auto value = static_cast<float>(sine ? std::sin(static_cast<double>(angle))
                                                   : std::cos(static_cast<double>(angle)));
        row[static_cast<size_t>(i)] = scale * (sine ? -value : value);
        row[static_cast<size_t>(half + i)] = scale * value;
      }
      // A tile may begin and end inside a row.
      const uint64_t skipped = offset - p * bytes.size();
      const size_t count = std::min<size_t>(bytes.size() - skipped, out.size());
      std::ranges::copy(bytes.subspan(skipped, count), out.begin());
      out = out.subspan(count);
      offset += count;
    }
  };
  return literal;
}

// The rows of this call, of tables over the whole context; `name` tells the tables of a program
// apart.
RopeTable rope_rows(GraphBuilder& b, const DecoderContext& c, const std::string& name,
                    const RopeConfig& rope) {
  const int64_t positions = c.options.context_length;
  const int64_t dim = c.config.rotary_dim();
  const Shape shape = {positions, 1, dim};
  const ValueId cos =
      b.literal(DType::kF32, shape, rope_literal(name, rope, dim, positions, /*sine=*/false));
  const ValueId sin =
      b.literal(DType::kF32, shape, rope_literal(name, rope, dim, positions, /*sine=*/true));
  RopeTable table;
  table.cos = b.slice(cos, 0, c.start_pos, c.end_pos, c.tokens);
  table.sin = b.slice(sin, 0, c.start_pos, c.end_pos, c.tokens);
  return table;
}

RopeTable add_rope(GraphBuilder& b, const DecoderContext& c, const std::string& name,
                   const RopeConfig& rope) {
  const LongRopeUse use = longrope_use(rope, c.options);
  RopeConfig longer = rope;
  longer.factors = rope.long_factors;
  RopeTable table = rope_rows(b, c, name, use == LongRopeUse::kLong ? longer : rope);
  if (use == LongRopeUse::kByCall) {
    const RopeTable other = rope_rows(b, c, "long_" + name, longer);
    const ValueId end = b.arange(c.end_pos, b.int_add(c.end_pos, 1), 1);
    const ValueId is_long = b.gt(end, static_cast<double>(rope.original_max_positions));
    table.cos = b.where(is_long, other.cos, table.cos);
    table.sin = b.where(is_long, other.sin, table.sin);
  }
  b.name(table.cos, name + "_cos");
  b.name(table.sin, name + "_sin");
  return table;
}

// How far each key of the range lies before each query: i64 [T, keys].
ValueId distances(GraphBuilder& b, const DecoderContext& c, const KeyRange& range) {
  const ValueId rows = b.unsqueeze(b.arange(c.start_pos, c.end_pos, c.tokens), 1);
  const ValueId columns = b.arange(range.start, c.end_pos, range.keys);
  return b.sub(rows, columns);
}

ValueId additive_mask(GraphBuilder& b, ValueId seen, std::string name) {
  const ValueId open = b.scalar(0.0F);
  const ValueId masked = b.scalar(kMasked);
  const ValueId mask = b.where(seen, open, masked);
  b.name(mask, std::move(name));
  return mask;
}

// A query at position p sees the keys (p - window, p]. The keys are a slice of the cache that holds
// only written positions, because a masked kernel reads everything it is given.
KeyRange add_window(GraphBuilder& b, const DecoderContext& c, int64_t window) {
  KeyRange range;
  const ValueId start = b.int_max(b.int_sub(c.start_pos, window - 1), 0);
  const ValueId keys = b.int_sub(c.end_pos, start);
  const int64_t most = std::min(c.options.context_length, window - 1 + c.options.prefill_length);
  range.start = start;
  range.keys = Dim::of(b.symbol("W", most, keys));
  const ValueId distance = distances(b, c, range);
  const ValueId not_after = b.ge(distance, 0);
  const ValueId inside = b.lt(distance, window);
  range.mask = additive_mask(b, b.logical_and(not_after, inside), "window_mask");
  return range;
}

// All keys up to the query's own.
KeyRange add_causal_range(GraphBuilder& b, const DecoderContext& c) {
  KeyRange range;
  range.keys = Dim::of(b.symbol("N", c.options.context_length, c.end_pos));
  range.mask = additive_mask(b, b.ge(distances(b, c, range), 0), "causal_mask");
  return range;
}

void add_attention_kinds(GraphBuilder& b, DecoderContext& c) {
  const ModelConfig& config = c.config;
  c.full.rope = add_rope(b, c, "rope", config.rope);
  // The attention operator knows no softcap: what replaces it wants a mask in every layer.
  if (config.scalars.attention_softcap) c.full.range = add_causal_range(b, c);
  c.sliding = c.full;
  if (!config.sliding_window) return;
  if (config.sliding_rope != config.rope) {
    c.sliding.rope = add_rope(b, c, "sliding_rope", config.sliding_rope);
  }
  if (*config.sliding_window < c.options.context_length) {
    c.sliding.range = add_window(b, c, *config.sliding_window);
  }
}

}  // namespace

DecoderContext make_decoder_context(GraphBuilder& b, const ModelConfig& config,
                                    const BuildOptions& options, ValueId input_pos,
                                    int32_t token_symbol) {
  DecoderContext c{.config = config, .options = options};
  c.tokens = Dim::of(token_symbol);
  const ValueId position = b.select(input_pos, 0, 0);
  c.start_pos = b.item(position);
  c.end_pos = b.int_add(c.start_pos, b.graph().symbols[static_cast<size_t>(token_symbol)].value);
  const int64_t stateful = std::ranges::count(config.layer_types, LayerType::kLinearAttention) +
                           std::ranges::count(config.layer_types, LayerType::kShortConv);
  if (stateful > 0) c.is_start = b.eq(position, 0);
  if (stateful < config.num_layers) add_attention_kinds(b, c);
  return c;
}

ValueId rope(GraphBuilder& b, const RopeTable& table, ValueId x) {
  const int64_t rotary = b.graph()[table.cos].shape.back().base;
  const bool partial = rotary < b.graph()[x].shape.back().base;
  const ValueId turned = partial ? b.slice(x, 3, 0, rotary) : x;
  const ValueId first = b.slice(turned, 3, 0, rotary / 2);
  const ValueId second = b.slice(turned, 3, rotary / 2, kToEnd);
  const ValueId swapped = b.cat({second, first}, 3);
  const ValueId straight = b.mul(turned, table.cos);
  const ValueId across = b.mul(swapped, table.sin);
  const ValueId out = b.add(straight, across);
  return partial ? b.cat({out, b.slice(x, 3, rotary, kToEnd)}, 3) : out;
}

}  // namespace ferry
