#include "converters/blocks/composed_attention.h"

#include <limits>

#include "converters/blocks/axes.h"

namespace ferry::converters {

ValueId softmax_with_sinks(GraphBuilder& b, ValueId scores, ValueId sinks) {
  if (!sinks.valid()) return b.softmax_last(scores);
  const Dims shape = b.graph()[scores].shape;
  const Dim group = heads(shape[1]);  // that share keys
  const ValueId by_head = b.view(sinks, {shape[0], group, 1, 1});
  const ValueId column = b.expand(by_head, {shape[0], shape[1], shape[2], 1});
  const ValueId weights = b.softmax_last(b.cat({column, scores}, 3));
  return b.slice(weights, 3, 1, std::numeric_limits<int64_t>::max());
}

ValueId composed_attention(GraphBuilder& b, ValueId query, ValueId keys, ValueId values,
                           ValueId mask, const ScoreStyle& style) {
  const Dims shape = b.graph()[query].shape;
  const Dim tokens = shape[1], dim = shape[3];
  const Dim count = b.graph()[keys].shape[1];
  const Dim kv_heads = b.graph()[keys].shape[2];
  const int64_t groups = shape[2].base / kv_heads.base;
  // The query heads that share a key head are rows of one product, so that no key is copied.
  const Dim rows = Dim::of(tokens.symbol, groups);
  const ValueId grouped = b.permute(
      b.view(b.mul(query, style.scale / style.cap.value_or(1.0)), {tokens, kv_heads, groups, dim}),
      {1, 2, 0, 3});
  const ValueId left = b.view(grouped, {kv_heads, rows, dim});
  const ValueId right = b.permute(b.view(keys, {count, kv_heads, dim}), {1, 2, 0});
  ValueId scores = b.bmm(left, right);
  if (style.cap) scores = b.mul(b.tanh(scores), *style.cap);
  ValueId masked = b.view(scores, {kv_heads, groups, tokens, count});
  if (mask.valid()) masked = b.add(masked, mask);
  const ValueId weights =
      b.view(softmax_with_sinks(b, masked, style.sinks), {kv_heads, rows, count});
  const ValueId held = b.permute(b.view(values, {count, kv_heads, dim}), {1, 0, 2});
  const ValueId mixed = b.view(b.bmm(weights, held), {kv_heads, groups, tokens, dim});
  return b.view(b.permute(mixed, {2, 0, 1, 3}), shape);
}

}  // namespace ferry::converters
