#include "converters/blocks/caches.h"

#include <fmt/format.h>

#include <utility>

#include "converters/blocks/axes.h"
#include "converters/blocks/blocks.h"
#include "converters/blocks/static_ports.h"

namespace ferry::converters {

KvCache updated_kv_cache(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId keys,
                         ValueId values) {
  const std::string name = layer_name(layer, "attention.kv_cache.");
  const Dims shape = {batch(), positions(c.options.context_length), heads(c.config.num_kv_heads),
                      head_dim(c.config.head_dim)};
  KvCache cache;
  cache.keys = b.buffer(name + "k_cache", DType::kF32, shape);
  cache.values = b.buffer(name + "v_cache", DType::kF32, shape);
  b.update_cache(keys, cache.keys, c.start_pos);
  b.update_cache(values, cache.values, c.start_pos);
  return cache;
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

}  // namespace ferry::converters
