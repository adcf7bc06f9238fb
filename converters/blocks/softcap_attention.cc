#include "converters/blocks/softcap_attention.h"

namespace ferry::converters {

ValueId softcap_attention(GraphBuilder& b, ValueId query, ValueId keys, ValueId values,
                          ValueId mask, double scale, double cap) {
  const Dims shape = b.graph()[query].shape;
  const Dim tokens = shape[1], dim = shape[3];
  const Dim count = b.graph()[keys].shape[1];
  const Dim kv_heads = b.graph()[keys].shape[2];
  const int64_t groups = shape[2].base / kv_heads.base;
  // The query heads that share a key head are rows of one product, so that no key is copied.
  const Dim rows = Dim::of(tokens.symbol, groups);
  const ValueId grouped =
      b.permute(b.view(b.mul(query, scale / cap), {tokens, kv_heads, groups, dim}), {1, 2, 0, 3});
  const ValueId left = b.view(grouped, {kv_heads, rows, dim});
  const ValueId right = b.permute(b.view(keys, {count, kv_heads, dim}), {1, 2, 0});
  const ValueId capped = b.mul(b.tanh(b.bmm(left, right)), cap);
  const ValueId masked = b.add(b.view(capped, {kv_heads, groups, tokens, count}), mask);
  const ValueId weights = b.view(b.softmax_last(masked), {kv_heads, rows, count});
  const ValueId held = b.permute(b.view(values, {count, kv_heads, dim}), {1, 0, 2});
  const ValueId mixed = b.view(b.bmm(weights, held), {kv_heads, groups, tokens, dim});
  return b.view(b.permute(mixed, {2, 0, 1, 3}), shape);
}

}  // namespace ferry::converters
