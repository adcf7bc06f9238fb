#include "converters/blocks/disentangled_attention.h"

#include <algorithm>
#include <cmath>

#include "converters/blocks/blocks.h"
#include "converters/blocks/position_tables.h"

namespace ferry::converters {
namespace {

// The queries, keys or values of a call, or of rows of distances.
ValueId by_heads(GraphBuilder& b, const ModelConfig& g, ValueId x, const std::string& name,
                 const Dim& count) {
  const ValueId out = projection(b, x, name, g.hidden_size, features(g.q_size()), /*bias=*/true);
  const ValueId viewed = b.view(out, {count, heads(g.num_heads), head_dim(g.head_dim)});
  return b.permute(viewed, {1, 0, 2});
}

// Returns the product of x [heads,T,head_dim] and the vector of every pair's distance: [heads,T,T].
// `ids` has a row for each row of x.
ValueId score_of_distances(GraphBuilder& b, const DecoderContext& c, ValueId x, ValueId rows,
                           const std::string& name, ValueId ids) {
  const ModelConfig& g = c.config;
  const Dim count = positions(2 * g.number(kRelativeSpan));
  const ValueId vectors = b.permute(by_heads(b, g, rows, name, count), {0, 2, 1});
  const ValueId all = b.bmm(x, vectors);
  const ValueId wide = b.expand(b.unsqueeze(ids, 0), {heads(g.num_heads), c.tokens, c.tokens});
  return b.gather_last(all, wide);
}

}  // namespace

// The reference computes in f32.
int64_t relative_row(const ModelConfig& config, int64_t distance) {
  const int64_t span = config.number(kRelativeSpan), length = std::abs(distance);
  const int64_t middle = config.number(kPositionBuckets) / 2;
  int64_t place = distance;
  if (middle > 0 && length > middle) {
    const auto logarithm = [](float x) {
      return static_cast<float>(std::log(static_cast<double>(x)));
    };
    const auto half = static_cast<double>(middle);
    const auto most = static_cast<double>(config.number(kFarthest) - 1);
    const float ratio = static_cast<float>(length) / static_cast<float>(middle);
    const float part = logarithm(ratio) / logarithm(static_cast<float>(most / half));
    const float steps = std::ceil(part * static_cast<float>(middle - 1));
    place = static_cast<int64_t>(steps) + middle;
    if (distance < 0) place = -place;
  }
  return std::clamp<int64_t>(place + span, 0, 2 * span - 1);
}

Distances make_distances(GraphBuilder& b, const DecoderContext& c) {
  const ModelConfig& g = c.config;
  const int64_t most = c.options.context_length;
  const ValueId at = call_positions(b, c);
  // Tokens of texts behind each other are masked, so that any row will do for their distances.
  const ValueId raised =
      b.to(tabled(b, at, "raised_position", most,
                  [most](int64_t position) { return static_cast<float>(position + most - 1); }),
           DType::kI64);
  const ValueId place = b.sub(raised, b.unsqueeze(at, 0));
  const ValueId row =
      tabled(b, place, "relative_row", 2 * most - 1, [&g, most](int64_t raised_distance) {
        return static_cast<float>(relative_row(g, raised_distance - most + 1));
      });
  Distances out;
  out.ids = b.to(b.select(row, 2, 0), DType::kI64);
  b.name(out.ids, "relative_rows");
  const Dim rows = positions(2 * g.number(kRelativeSpan));
  const ValueId table = b.weight_f32("relative_embeddings.weight", {rows, features(g.hidden_size)});
  out.rows = b.unsqueeze(table, 0);
  if (g.number(kRelativeNorm) != 0) {
    out.rows = layer_norm(b, out.rows, "relative_norm", g.rms_norm_eps);
  }
  return out;
}

ValueId disentangled_attention(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                               const Distances& distances) {
  const ModelConfig& g = c.config;
  const std::string prefix = layer_name(layer, "attention");
  const bool shared = g.number(kSharedProjections) != 0;
  const double scale = *g.scalars.attention;
  const ValueId query = b.mul(by_heads(b, g, x, prefix + ".wq", c.tokens), scale);
  const ValueId keys = by_heads(b, g, x, prefix + ".wk", c.tokens);
  const ValueId values = by_heads(b, g, x, prefix + ".wv", c.tokens);
  ValueId scores = b.bmm(query, b.permute(keys, {0, 2, 1}));
  if (g.number(kContentToPosition) != 0) {
    const std::string name = prefix + (shared ? ".wk" : ".wk_of_distance");
    scores = b.add(scores, score_of_distances(b, c, query, distances.rows, name, distances.ids));
  }
  if (g.number(kPositionToContent) != 0) {
    const std::string name = prefix + (shared ? ".wq" : ".wq_of_distance");
    const ValueId turned = b.permute(distances.ids, {1, 0});
    const ValueId scaled = b.mul(keys, scale);
    const ValueId by_key = score_of_distances(b, c, scaled, distances.rows, name, turned);
    scores = b.add(scores, b.permute(by_key, {0, 2, 1}));
  }
  const std::optional<KeyRange>& range = c.kind_of(layer).range;
  if (range && range->mask.valid()) scores = b.add(scores, range->mask);
  const ValueId mixed = b.permute(b.bmm(b.softmax_last(scores), values), {1, 0, 2});
  const ValueId out = b.view(mixed, {batch(), c.tokens, features(g.q_size())});
  return projection(b, out, prefix + ".wo", g.q_size(), g.hidden_size, /*bias=*/true);
}

}  // namespace ferry::converters
