#include "converters/blocks/static_attention.h"

#include <cmath>

#include "converters/blocks/axes.h"
#include "converters/blocks/blocks.h"
#include "converters/blocks/composed_attention.h"
#include "converters/blocks/static_ports.h"

namespace ferry::converters {
namespace {

double score_scale(const ModelConfig& config) {
  const double usual = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  return config.scalars.attention.value_or(usual);
}

// A masked column weighs exp(-20) of the least column that the query may attend to.
constexpr float kBelowSmallest = -20.0F;

// The scores that softmax sees. `mask` is 0 where a query may attend.
ValueId masked_scores(GraphBuilder& b, const DecoderContext& c, ValueId scores, ValueId mask) {
  if (c.options.softmax == SoftmaxStyle::kPlain) return b.add(scores, mask);
  const ValueId seen = b.eq(mask, 0);
  const ValueId smallest = b.amin_last(scores);
  const ValueId hidden = b.add(smallest, b.scalar(kBelowSmallest));
  return b.where(seen, scores, hidden);
}

}  // namespace

ValueId static_attention(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId query,
                         ValueId keys, ValueId values) {
  const auto [all_keys, all_values] = c.ports->extend(b, layer, keys, values);
  return static_attend(b, c, layer, query, all_keys, all_values);
}

ValueId static_attend(GraphBuilder& b, const DecoderContext& c, int64_t layer, ValueId query,
                      ValueId all_keys, ValueId all_values) {
  const ModelConfig& g = c.config;
  const int64_t tokens = c.tokens.base, context = c.options.context_length;
  const int64_t groups = g.num_heads / g.num_kv_heads;
  const Dim all = positions(context), kv = heads(g.num_kv_heads), dim = head_dim(g.head_dim);
  // The query heads that share a key head are rows of one product, so that no key is copied.
  const double cap = g.scalars.attention_softcap.value_or(1.0);
  const ValueId by_head = b.permute(b.mul(query, score_scale(g) / cap), {0, 2, 1, 3});
  const ValueId rows = b.view(by_head, {kv, groups * tokens, dim});
  ValueId scores = b.bmm(rows, b.view(all_keys, {kv, dim, all}));
  if (g.scalars.attention_softcap) scores = b.mul(b.tanh(scores), cap);
  const ValueId grouped = b.view(scores, {kv, groups, positions(tokens), all});
  const ValueId masked = masked_scores(b, c, grouped, c.kind_of(layer).mask);
  const ValueId weights = b.view(softmax_with_sinks(b, masked, attention_sinks(b, c, layer)),
                                 {kv, groups * tokens, all});
  const ValueId mixed = b.bmm(weights, b.view(all_values, {kv, all, dim}));
  const ValueId out = b.view(mixed, {batch(), heads(g.num_heads), positions(tokens), dim});
  return b.permute(out, {0, 2, 1, 3});
}

}  // namespace ferry::converters
