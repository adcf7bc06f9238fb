#include "converters/blocks/router.h"

#include <fmt/format.h>

#include <tuple>

#include "converters/blocks/axes.h"

namespace ferry::converters {
namespace {

using Scores = MoeConfig::Scores;

// The experts of the best groups: their scores f32 [T,n] and ids i64 [T,n].
struct Candidates {
  ValueId scores, ids;
};

Candidates best_groups(GraphBuilder& b, const DecoderContext& c, ValueId choice) {
  const MoeConfig& moe = c.config.moe;
  const int64_t size = moe.experts / moe.groups;
  const Dim count = moe.top_groups * size;
  const ValueId grouped = b.view(choice, {c.tokens, moe.groups, size});
  const ValueId best = b.topk_last(grouped, moe.group_best).first;
  const ValueId sums = b.view(b.sum_last(best), {c.tokens, moe.groups});
  const ValueId groups = b.topk_last(sums, moe.top_groups).second;
  const ValueId wide = b.expand(b.unsqueeze(groups, 1), {c.tokens, size, moe.top_groups});
  // [T,size,groups] -> [T,size,top_groups], of which a row is the members of the groups.
  const auto members = [&](ValueId of_groups) {
    const ValueId found = b.gather_last(b.permute(of_groups, {0, 2, 1}), wide);
    return b.view(found, {c.tokens, experts(count)});
  };
  Candidates out;
  out.scores = members(grouped);
  const ValueId all = b.arange(0, moe.experts, moe.experts);
  const ValueId ids = b.view(all, {1, moe.groups, size});
  out.ids = members(b.expand(ids, {c.tokens, moe.groups, size}));
  return out;
}

ValueId chosen(GraphBuilder& b, const DecoderContext& c, ValueId choice) {
  const MoeConfig& moe = c.config.moe;
  if (moe.top_groups == moe.groups) return b.topk_last(choice, moe.per_token).second;
  const Candidates candidates = best_groups(b, c, choice);
  const ValueId places = b.topk_last(candidates.scores, moe.per_token).second;
  return b.gather_last(candidates.ids, places);
}

ValueId scores_of(GraphBuilder& b, Scores kind, ValueId logits) {
  if (kind == Scores::kSoftmax) return b.softmax_last(logits);
  return kind == Scores::kSigmoid ? b.sigmoid(logits) : logits;
}

// The scores of the chosen experts, as they multiply the outputs of these.
ValueId weighted(GraphBuilder& b, const MoeConfig& moe, ValueId scores) {
  if (moe.scores == Scores::kTopSoftmax) return b.softmax_last(scores);
  if (moe.norm_top_scores) {
    ValueId sum = b.sum_last(scores);
    if (moe.norm_epsilon != 0.0) sum = b.add(sum, b.scalar(static_cast<float>(moe.norm_epsilon)));
    scores = b.div(scores, sum);
  }
  return moe.scale == 1.0 ? scores : b.mul(scores, moe.scale);
}

}  // namespace

Route routed(GraphBuilder& b, const DecoderContext& c, ValueId rows, int64_t layer,
             const std::string& prefix) {
  const MoeConfig& moe = c.config.moe;
  const Dim count = experts(moe.experts);
  const ValueId router =
      b.weight_f32(prefix + ".gate.weight", {count, features(c.config.hidden_size)});
  ValueId logits = b.linear(rows, router);
  if (moe.router_bias) logits = b.add(logits, b.weight(prefix + ".gate.bias", {count}));
  b.probe(fmt::format("router_logits.{}", layer), logits);
  const ValueId scores = scores_of(b, moe.scores, logits);
  Route route;
  if (moe.scores == Scores::kSoftmax && moe.top_groups == moe.groups) {
    std::tie(route.scores, route.ids) = b.topk_last(scores, moe.per_token);
    b.probe(fmt::format("router_weights.{}", layer), route.scores);
  } else {
    ValueId choice = scores;
    if (moe.choice_bias) {
      choice = b.add(choice, b.weight(prefix + ".gate.choice_bias", {count}));
      b.probe(fmt::format("router_choice.{}", layer), choice);
    }
    route.ids = chosen(b, c, choice);
    route.scores = b.gather_last(scores, route.ids);
  }
  b.probe(fmt::format("router_experts.{}", layer), route.ids);
  route.scores = weighted(b, moe, route.scores);
  return route;
}

}  // namespace ferry::converters
