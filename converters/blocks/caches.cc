#include "converters/blocks/caches.h"

#include <fmt/format.h>
#include <limits>
#include <utility>

#include "converters/blocks/blocks.h"
#include "converters/blocks/static_ports.h"
#include "core/program_interface.h"

namespace ferry::converters {
namespace {

// Writes the rows of the call into a cache.
void write_rows(GraphBuilder& b, const DecoderContext& c, ValueId rows, ValueId cache) {
  if (!c.write_slots.valid()) return b.update_cache(rows, cache, c.start_pos);
  b.update_cache_rows(rows, cache, c.start_pos, c.write_slots);
}

// Writes rows into an i8 cache, as codes with their scales and zero points.
CachedRows update_coded(GraphBuilder& b, const DecoderContext& c, const std::string& name,
                        const Dims& shape, ValueId rows) {
  Dims by_row = shape;
  by_row.back() = head_dim(1);
  const std::string cache_name = name + "_cache";
  CachedRows cache;
  cache.rows = b.buffer(cache_name, DType::kI8, shape);
  graph::CodedRows& coded = cache.coded.emplace();
  coded.codes = cache.rows;
  coded.scales = b.buffer(cache_name + kCacheScales, DType::kF32, by_row);
  coded.zero_points = b.buffer(cache_name + kCacheZeroPoints, DType::kI8, by_row);
  const graph::CodedRows fresh = b.quantize_rows(rows);
  write_rows(b, c, fresh.codes, coded.codes);
  write_rows(b, c, fresh.scales, coded.scales);
  write_rows(b, c, fresh.zero_points, coded.zero_points);
  return cache;
}

CachedRows update(GraphBuilder& b, const DecoderContext& c, const std::string& name,
                  const Dims& shape, ValueId rows) {
  if (c.options.kv_cache == DType::kI8) return update_coded(b, c, name, shape, rows);
  CachedRows cache;
  cache.rows = b.buffer(name + "_cache", c.options.kv_cache, shape);
  if (c.options.kv_cache != DType::kF32) rows = b.to_dtype(rows, c.options.kv_cache);
  write_rows(b, c, rows, cache.rows);
  return cache;
}

}  // namespace

KvCache updated_kv_cache(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId keys,
                         ValueId values) {
  const std::string name = layer_name(layer, "attention.kv_cache.");
  const HeadSizes sizes = c.config.heads_of(layer);
  const Dims shape = {batch(), positions(c.options.context_length), heads(sizes.kv_heads),
                      head_dim(sizes.dim)};
  KvCache cache;
  cache.keys = update(b, c, name + "k", shape, keys);
  cache.values = values == keys ? cache.keys : update(b, c, name + "v", shape, values);
  return cache;
}

ValueId cached(GraphBuilder& b, const DecoderContext& c, const CachedRows& cache,
               const graph::IntArg& start, const Dim& count) {
  const auto part = [&](ValueId buffer) { return b.slice(buffer, 1, start, c.cache_end, count); };
  if (!cache.coded) {
    const ValueId rows = part(cache.rows);
    return c.options.kv_cache == DType::kF32 ? rows : b.to_dtype(rows, DType::kF32);
  }
  graph::CodedRows rows;
  rows.codes = part(cache.coded->codes);
  rows.scales = part(cache.coded->scales);
  rows.zero_points = part(cache.coded->zero_points);
  return b.dequantize_rows(rows);
}

State state(GraphBuilder& b, const DecoderContext& c, int64_t layer, std::string name, Dims shape) {
  State out;
  out.layer = layer;
  ValueId held;
  if (c.ports != nullptr) {
    held = b.input(fmt::format("{}_{}", name, layer), DType::kF32, std::move(shape));
  } else {
    out.buffer = b.buffer(layer_name(layer, "attention.") + name, DType::kF32, std::move(shape));
    held = out.buffer;
  }
  out.name = std::move(name);
  out.before = b.where(c.is_start, b.scalar(0.0F), held);
  return out;
}

void keep(const DecoderContext& c, const State& state, ValueId after) {
  if (c.ports == nullptr) return;
  c.ports->add_state(fmt::format("new_{}_{}", state.name, state.layer), after);
}

ValueId causal_conv(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                    int64_t channels, int64_t kernel) {
  const State past =
      state(b, c, layer, "conv_state", {batch(), features(channels), positions(kernel)});
  const ValueId columns = b.cat({b.slice(past.before, 2, 1, kernel), b.permute(x, {0, 2, 1})}, 2);
  keep(c, past,
       b.slice_into(past.buffer, columns, 2, -kernel, std::numeric_limits<int64_t>::max()));
  const ValueId weight =
      b.weight(layer_name(layer, "attention.conv1d.weight"), {features(channels), 1, kernel});
  return b.depthwise_conv1d(columns, weight);
}

}  // namespace ferry::converters
