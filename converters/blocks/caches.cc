#include "converters/blocks/caches.h"

#include <utility>

#include "converters/blocks/axes.h"
#include "converters/blocks/blocks.h"

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

State state(GraphBuilder& b, const DecoderContext& c, const std::string& name, Dims shape) {
  State out;
  out.buffer = b.buffer(name, DType::kF32, std::move(shape));
  out.before = b.where(c.is_start, b.scalar(0.0F), out.buffer);
  return out;
}

}  // namespace ferry::converters
