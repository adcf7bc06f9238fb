#include "converters/blocks/decoder_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "converters/blocks/alibi.h"
#include "converters/blocks/blocks.h"
#include "converters/blocks/placed_rows.h"
#include "converters/blocks/position_tables.h"
#include "converters/blocks/relative_bias.h"
#include "converters/blocks/ring_cache.h"
#include "converters/blocks/rope.h"
#include "converters/blocks/rope_angles.h"
#include "converters/blocks/shared_layers.h"
#include "converters/blocks/static_ports.h"

namespace ferry::converters {
namespace {

constexpr int64_t kToEnd = std::numeric_limits<int64_t>::max();

// Consecutive rows of a RoPE table: the positions from `first` on, with these inverse frequencies.
struct RopeRows {
  int64_t positions = 0;
  std::vector<float> inverse;
  int64_t first = 0;
};

// Returns the rows of the table. A longrope table has all positions of the context with the long
// factors, then those up to the switch with the short factors.
std::vector<RopeRows> rope_table_rows(const RopeConfig& rope, int64_t rotary_dim,
                                      const BuildOptions& options) {
  const RopeRows rows = {options.context_length, rope_inverse_frequencies(rope, rotary_dim),
                         rope.first_position};
  const std::optional<int64_t> limit = longrope_switch(rope, options);
  if (!limit) return {rows};
  RopeConfig longer = rope;
  longer.factors = rope.long_factors;
  return {{options.context_length, rope_inverse_frequencies(longer, rotary_dim)},
          {*limit, rows.inverse}};
}

// The factor of cos and sin at a position: attention_factor, and the growth of queries.
struct RowScale {
  double factor, growth;
  int64_t original_max_positions;

  float operator()(uint64_t position) const {
    if (growth == 0.0) return static_cast<float>(factor);
    const uint64_t times = position / static_cast<uint64_t>(original_max_positions);
    return static_cast<float>(factor * (1.0 + growth * std::log1p(static_cast<double>(times))));
  }
};
RowScale row_scale(const RopeConfig& rope) {
  return {rope.attention_factor, rope.query_growth, rope.original_max_positions};
}

// Makes the literal of cos or sin of position * inverse frequency: f32 [positions, rotary_dim / 2].
graph::Literal rope_literal(const std::string& name, const std::vector<RopeRows>& runs,
                            const RowScale& scale_of, int64_t positions, bool sine) {
  const int64_t half = std::ssize(runs.front().inverse);
  graph::Literal literal;
  literal.key = fmt::format("{}.{}.{}", name, sine ? "sin" : "cos", positions);
  literal.bytes = static_cast<uint64_t>(positions * half) * sizeof(float);
  literal.fill = [runs, half, scale_of, sine](uint64_t offset, std::span<std::byte> out) {
    std::vector<float> row(static_cast<size_t>(half));
    const std::span<const std::byte> bytes = std::as_bytes(std::span(row));
    for (uint64_t p = offset / bytes.size(); !out.empty(); ++p) {
      const auto first = static_cast<uint64_t>(runs.front().positions);
      const RopeRows& run = p < first ? runs.front() : runs.back();
      const uint64_t position = (p < first ? p : p - first) + static_cast<uint64_t>(run.first);
      const float scale = scale_of(position);
      for (size_t i = 0; i < row.size(); ++i) {
        // The angle is rounded to f32, as the reference implementation computes it.
        const double angle = static_cast<float>(position) * run.inverse[i];
        row[i] = scale * static_cast<float>(sine ? std::sin(angle) : std::cos(angle));
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

// Half-split RoPE rotates columns i and i + rotary_dim / 2 by one angle. Returns rows of both, from
// table rows of the angles. Programs compute them so that tables hold every angle once. The first
// half of sine rows is negated, so that x * cos + swapped(x) * sin rotates every pair.
ValueId both_halves(GraphBuilder& b, ValueId angles, bool sine) {
  const ValueId first = sine ? b.mul(angles, -1.0) : angles;
  return b.cat({first, angles}, -1);
}

// Returns the row of the call's first position in a table where the rows of the short factors
// follow those of the long factors.
ValueId longrope_first_row(GraphBuilder& b, const DecoderContext& c, int64_t limit) {
  const ValueId ends = b.arange(c.end_pos, b.int_add(c.end_pos, 1), 1);
  const ValueId not_said = b.ge(c.signed_start, 0);
  const ValueId ends_before = b.lt(b.select(ends, 0, 0), limit + 1);
  const ValueId is_short = b.logical_and(not_said, ends_before);
  const ValueId skipped = int_scalar(b, c.options.context_length);
  const ValueId none = int_scalar(b, 0);
  return b.int_add(c.start_pos, b.item(b.where(is_short, skipped, none)));
}

// Returns the angles of this call's positions: f32 [T,1,rotary_dim]. Those of the first half are
// negated. They are rounded to f32, as the reference implementation computes them.
ValueId call_angles(GraphBuilder& b, const DecoderContext& c, const std::string& name,
                    const RopeConfig& rope, int64_t rotary_dim) {
  const std::vector<float> inverse = rope_inverse_frequencies(rope, rotary_dim);
  if (c.rope_positions.valid())
    return angles_by_axis(b, c.rope_positions, name, inverse, rope.axes);
  const ValueId frequencies =
      b.literal(DType::kF32, {1, 1, head_dim(rotary_dim)}, frequencies_literal(name, inverse));
  const ValueId places = c.rope_places.valid() ? c.rope_places : call_positions(b, c);
  ValueId numbers = b.to(places, DType::kF32);
  if (rope.first_position != 0) {
    numbers = b.add(numbers, b.scalar(static_cast<float>(rope.first_position)));
  }
  return b.mul(b.unsqueeze(b.unsqueeze(numbers, 1), 2), frequencies);
}

// Returns cos and sin of this call's positions, which the program computes. The angles of the first
// half are negated, which negates its sines.
RopeTable compute_rope(GraphBuilder& b, const DecoderContext& c, const std::string& name,
                       const RopeConfig& rope, int64_t rotary_dim) {
  const ValueId angles = call_angles(b, c, name, rope, rotary_dim);
  const auto scaled = [&](ValueId rows) {
    return rope.attention_factor == 1.0 ? rows : b.mul(rows, rope.attention_factor);
  };
  const RopeTable table = {scaled(b.cos(angles)), scaled(b.sin(angles))};
  b.name(table.cos, name + "_cos");
  b.name(table.sin, name + "_sin");
  return table;
}

// Returns the table rows of this call's positions. `name` is unique among the tables of a program.
RopeTable slice_rope(GraphBuilder& b, const DecoderContext& c, const std::string& name,
                     const RopeConfig& rope, int64_t rotary_dim) {
  const std::vector<RopeRows> runs = rope_table_rows(rope, rotary_dim, c.options);
  int64_t rows = 0;
  for (const RopeRows& run : runs) rows += run.positions;
  const Dims shape = {positions(rows), 1, head_dim(rotary_dim / 2)};
  const auto table_of = [&](bool sine) {
    return b.literal(DType::kF32, shape, rope_literal(name, runs, row_scale(rope), rows, sine));
  };
  const ValueId cos = table_of(/*sine=*/false);
  const ValueId sin = table_of(/*sine=*/true);
  graph::IntArg first = c.start_pos;
  graph::IntArg end = c.end_pos;
  if (const std::optional<int64_t> limit = longrope_switch(rope, c.options)) {
    first = longrope_first_row(b, c, *limit);
    end = b.int_add(first, b.graph().symbols[static_cast<size_t>(c.tokens.symbol)].value);
  }
  RopeTable table;
  table.cos = both_halves(b, b.slice(cos, 0, first, end, c.tokens), /*sine=*/false);
  table.sin = both_halves(b, b.slice(sin, 0, first, end, c.tokens), /*sine=*/true);
  b.name(table.cos, name + "_cos");
  b.name(table.sin, name + "_sin");
  return table;
}

// Returns cos and sin of this call's positions, from a table only where a program cannot compute
// them from the position alone.
RopeTable add_rope(GraphBuilder& b, const DecoderContext& c, const std::string& name,
                   const RopeConfig& rope, int64_t rotary_dim) {
  const bool tabled = rope.query_growth != 0.0 || longrope_switch(rope, c.options).has_value();
  return (tabled ? slice_rope : compute_rope)(b, c, name, rope, rotary_dim);
}

bool is_encoder(const DecoderContext& c) { return c.options.style == ProgramStyle::kEncoder; }

// Returns the position of each query minus the position of each key: i64 [T, keys].
ValueId distances(GraphBuilder& b, const DecoderContext& c, const KeyRange& range) {
  const ValueId rows = b.unsqueeze(b.arange(c.start_pos, c.end_pos, c.tokens), 1);
  const ValueId columns = b.arange(range.start, c.end_pos, range.keys);
  return b.sub(rows, columns);
}

// Returns whether each query attends to as late a position as that of each key: bool [T, keys].
// `distance` is that of distances().
ValueId not_beyond(GraphBuilder& b, const DecoderContext& c, const KeyRange& range,
                   ValueId distance) {
  if (!c.attention_end.valid()) return b.ge(distance, 0);
  const ValueId ends = b.unsqueeze(b.select(c.attention_end, 0, 0), 1);
  const ValueId columns = b.arange(range.start, c.end_pos, range.keys);
  return b.ge(b.sub(ends, columns), 1);
}

ValueId additive_mask(GraphBuilder& b, ValueId seen, std::string name) {
  const ValueId open = b.scalar(0.0F);
  const ValueId masked = b.scalar(kMaskedScore);
  const ValueId mask = b.where(seen, open, masked);
  b.name(mask, std::move(name));
  return mask;
}

// Returns whether two tokens are of the same text: bool [T,T].
ValueId same_text(GraphBuilder& b, const DecoderContext& c) {
  const ValueId ids = b.select(c.text_ids, 0, 0);
  const ValueId rows = b.unsqueeze(ids, 1);
  const ValueId columns = b.unsqueeze(ids, 0);
  return b.eq(b.sub(rows, columns), 0);
}

// Returns whether each key is in the window or chunk of each query: bool [T, keys].
ValueId in_window(GraphBuilder& b, const DecoderContext& c, ValueId distance, int64_t window) {
  return c.config.number(kChunkedWindows) != 0 ? in_chunk(b, c, distance) : b.lt(distance, window);
}

// Returns all tokens of the call as the keys of an encoder. A mask hides some of them where
// attention is causal or has a window, and where they are of another text.
KeyRange add_encoder_range(GraphBuilder& b, const DecoderContext& c,
                           std::optional<int64_t> window) {
  KeyRange range;
  range.keys = c.tokens;
  const bool two_way = c.config.two_way;
  const bool several = c.text_ids.valid();
  if (two_way && !window && !several) return range;
  ValueId seen;
  if (!two_way || window) {
    const ValueId distance = distances(b, c, range);
    seen = b.ge(distance, two_way ? 1 - *window : 0);
    if (window) seen = b.logical_and(seen, in_window(b, c, distance, *window));
  }
  if (several) {
    const ValueId same = same_text(b, c);
    seen = seen.valid() ? b.logical_and(seen, same) : same;
  }
  const bool by_text = several && two_way && !window;
  range.mask = additive_mask(b, seen,
                             window    ? "window_mask"
                             : by_text ? "text_mask"
                                       : "causal_mask");
  return range;
}

// A query at position p attends to the keys at (p - window, p], or up to its attention_end. The
// keys are a slice of the cache with written positions only, because a masked kernel reads all of
// its keys.
KeyRange add_window(GraphBuilder& b, const DecoderContext& c, int64_t window) {
  if (is_encoder(c)) return add_encoder_range(b, c, window);
  KeyRange range;
  const ValueId start = b.int_max(b.int_sub(c.start_pos, window - 1), 0);
  const ValueId keys = b.int_sub(c.end_pos, start);
  const int64_t most = std::min(c.options.context_length, window - 1 + c.options.prefill_length);
  range.start = start;
  range.keys = positions(Dim::of(b.symbol("W", most, keys)));
  const ValueId distance = distances(b, c, range);
  const ValueId not_after = not_beyond(b, c, range, distance);
  const ValueId inside = in_window(b, c, distance, window);
  range.mask = additive_mask(b, b.logical_and(not_after, inside), "window_mask");
  return range;
}

// A query at position p attends to the keys at [0, p], or up to its attention_end. In an encoder
// with attention in both directions it attends to all keys.
KeyRange add_causal_range(GraphBuilder& b, const DecoderContext& c) {
  if (is_encoder(c)) return add_encoder_range(b, c, std::nullopt);
  KeyRange range;
  range.keys = c.written;
  const ValueId distance = c.attention_end.valid() ? ValueId{} : distances(b, c, range);
  range.mask = additive_mask(b, not_beyond(b, c, range, distance), "causal_mask");
  return range;
}

using TableMaker = RopeTable(GraphBuilder&, const DecoderContext&, const std::string& name,
                             const RopeConfig&, int64_t rotary_dim);

// Whether queries grow within the context (RopeConfig::query_growth).
bool queries_grow(const DecoderContext& c, const RopeConfig& rope) {
  return rope.query_growth != 0.0 && rope.original_max_positions < c.options.context_length;
}

// Adds the tables of one kind of attention: a table for keys, and another for queries where they
// grow.
void add_tables(GraphBuilder& b, DecoderContext& c, LayerType type, TableMaker* table) {
  const bool slides = type == LayerType::kSlidingAttention;
  AttentionKind& kind = slides ? c.sliding : c.full;
  const std::string name = c.prefix + (slides ? "sliding_rope" : "rope");
  const RopeConfig& rope = slides ? c.config.sliding_rope : c.config.rope;
  const int64_t rotary_dim = c.config.rotary_dim(type);
  RopeConfig of_keys = rope;
  of_keys.query_growth = 0.0;
  kind.rope = table(b, c, name, of_keys, rotary_dim);
  kind.query_rope =
      queries_grow(c, rope) ? table(b, c, "query_" + name, rope, rotary_dim) : kind.rope;
}

// Whether sliding attention has tables of its own.
bool slides_differ(const ModelConfig& config) {
  return config.sliding_rope != config.rope ||
         config.rotary_dim(LayerType::kSlidingAttention) != config.rotary_dim();
}

void add_attention_kinds(GraphBuilder& b, DecoderContext& c) {
  const ModelConfig& config = c.config;
  if (c.options.attention_sink) add_ring(b, c);
  if (config.has_rope()) add_tables(b, c, LayerType::kFullAttention, add_rope);
  if (c.options.attention_sink) return;  // every layer has full attention
  if (plain_queries_grow(c)) c.query_growth = query_growth(b, c, call_positions(b, c));
  const bool in_windows = config.vision && config.vision->two_way_in_windows;
  // composed_attention() needs a mask in every layer.
  const bool masked = config.scalars.attention_softcap.has_value() ||
                      config.number(kAttentionSinks) != 0 || config.number(kAlibi) != 0 ||
                      (config.relative_bias && !is_encoder(c)) || c.text_ids.valid() ||
                      (c.attention_end.valid() && !in_windows);
  const bool shared = first_shared_layer(config) < config.num_layers;
  if (!is_encoder(c) && (masked || shared || c.options.kv_cache != DType::kF32)) {
    written_positions(b, c);
  }
  if (masked) c.full.range = add_causal_range(b, c);
  if (config.number(kAlibi) != 0) add_alibi(b, c);
  c.sliding = c.full;
  if (!config.sliding_window) return;
  if (slides_differ(config)) add_tables(b, c, LayerType::kSlidingAttention, add_rope);
  if (*config.sliding_window < c.options.context_length || in_windows) {
    c.sliding.range = add_window(b, c, *config.sliding_window);
  }
}

bool has_attention(const ModelConfig& config) {
  return std::ranges::any_of(config.layer_types, is_attention);
}
bool has_states(const ModelConfig& config) {
  return std::ranges::any_of(config.layer_types, has_state);
}

// Returns the table rows of this call's positions in a static program.
RopeTable look_up_rope(GraphBuilder& b, const DecoderContext& c, const std::string& name,
                       const RopeConfig& rope, int64_t dim) {
  const std::vector<RopeRows> runs = rope_table_rows(rope, dim, c.options);
  const int64_t count = c.options.context_length;
  const auto rows_of = [&](bool sine) {
    const ValueId table = b.literal(DType::kF32, {positions(count), head_dim(dim / 2)},
                                    rope_literal(name, runs, row_scale(rope), count, sine));
    const ValueId picked = b.embedding(table, c.ports->input_pos());
    const ValueId rows = both_halves(b, b.unsqueeze(picked, 2), sine);
    b.name(rows, name + (sine ? "_sin" : "_cos"));
    return rows;
  };
  RopeTable out;
  out.cos = rows_of(/*sine=*/false);
  out.sin = rows_of(/*sine=*/true);
  return out;
}

// Whether `position` is 0, or -1 in programs where callers may pass -1 - position.
ValueId is_first_position(GraphBuilder& b, const DecoderContext& c, ValueId position) {
  if (!c.signed_start.valid()) return b.eq(position, 0);
  const ValueId not_before = b.ge(position, -1);
  return b.logical_and(not_before, b.lt(position, 1));
}

}  // namespace

Dim written_positions(GraphBuilder& b, DecoderContext& c) {
  if (c.written.symbol < 0) {
    c.written = positions(Dim::of(b.symbol("N", c.options.context_length, c.end_pos)));
  }
  return c.written;
}

DecoderContext make_decoder_context(GraphBuilder& b, const ModelConfig& config,
                                    const BuildOptions& options, const PlaceInputs& places,
                                    int32_t token_symbol) {
  DecoderContext c{.config = config, .options = options};
  c.tokens = positions(Dim::of(token_symbol));
  c.attention_end = places.attention_end;
  c.rope_positions = places.rope_positions;
  const ValueId position = b.select(places.input_pos, 0, 0);
  c.start_pos = b.item(position);
  if (longrope_switch(config.rope, options)) {
    c.signed_start = position;
    c.start_pos = b.int_max(c.start_pos, b.int_sub(-1, c.start_pos));
  }
  c.end_pos = b.int_add(c.start_pos, b.graph().symbols[static_cast<size_t>(token_symbol)].value);
  c.cache_end = c.end_pos;
  if (places.rows.valid()) c.embeddings = read_placed_rows(b, c, places.rows);
  if (has_states(config)) c.is_start = is_first_position(b, c, position);
  if (has_attention(config)) add_attention_kinds(b, c);
  if (config.relative_bias) add_relative_bias(b, c);
  return c;
}

DecoderContext make_encoder_context(GraphBuilder& b, const ModelConfig& config,
                                    const BuildOptions& options, const EncoderInputs& inputs) {
  DecoderContext c{.config = config, .options = options};
  c.prefix = inputs.prefix;
  c.tokens = positions(Dim::of(inputs.tokens));
  c.token_ids = inputs.token_ids;
  c.text_ids = inputs.text_ids;
  c.position_ids = inputs.position_ids;
  c.last_tokens = inputs.last_tokens;
  c.token_types = inputs.token_types;
  c.end_pos = b.graph().symbols[static_cast<size_t>(inputs.tokens)].value;
  add_attention_kinds(b, c);
  if (config.relative_bias) add_relative_bias(b, c);
  return c;
}

DecoderContext make_static_context(GraphBuilder& b, const ModelConfig& config,
                                   const BuildOptions& options, StaticPorts& ports,
                                   int64_t tokens) {
  DecoderContext c{.config = config, .options = options};
  c.tokens = positions(tokens);
  c.ports = &ports;
  c.layer_tokens = ports.layer_tokens();
  if (has_states(config)) c.is_start = b.eq(b.select(b.select(ports.input_pos(), 1, 0), 0, 0), 0);
  if (!ports.attention_mask().valid()) return c;
  if (config.has_rope()) add_tables(b, c, LayerType::kFullAttention, look_up_rope);
  if (plain_queries_grow(c)) c.query_growth = query_growth(b, c, ports.input_pos());
  c.full.mask = ports.attention_mask();
  if (config.number(kAlibi) != 0) add_alibi(b, c);
  c.sliding = c.full;
  if (config.sliding_window && slides_differ(config)) {
    add_tables(b, c, LayerType::kSlidingAttention, look_up_rope);
  }
  if (ports.window_mask().valid()) c.sliding.mask = ports.window_mask();
  return c;
}

ValueId call_positions(GraphBuilder& b, const DecoderContext& c) {
  return c.position_ids.valid() ? b.select(c.position_ids, 0, 0)
                                : b.arange(c.start_pos, c.end_pos, c.tokens);
}

ValueId attention_sinks(GraphBuilder& b, const DecoderContext& c, int64_t layer) {
  const int64_t sinks = c.config.number(kAttentionSinks);
  const LayerType type = c.config.layer_types[static_cast<size_t>(layer)];
  if (sinks == 0 || (sinks == kSlidingSinks && type != LayerType::kSlidingAttention)) return {};
  return b.weight(fmt::format("layers.{}.attention.sinks", layer), {heads(c.config.num_heads)});
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

}  // namespace ferry::converters
