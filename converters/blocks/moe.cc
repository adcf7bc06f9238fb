// Mixture of experts: sparse_mlp(). A router scores all experts for every token. The token passes
// through those with the highest scores, and through a shared one where the family has it.
#include <fmt/format.h>

#include <limits>
#include <string>
#include <tuple>

#include "converters/blocks/blocks.h"
#include "converters/blocks/decoder.h"

namespace ferry::converters {
namespace {

// The experts that each token passes through, and the factors of their outputs.
struct Route {
  ValueId ids;     // i64 [T,k]
  ValueId scores;  // f32 [T,k]
};

using Scores = MoeConfig::Scores;

constexpr double kNoLimit = std::numeric_limits<float>::max();

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
  // Takes the members of the best groups: [T,groups,size] -> [T,size,top_groups] -> [T,n].
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

// Turns the scores of the chosen experts into the factors of their outputs.
ValueId weighted(GraphBuilder& b, const MoeConfig& moe, ValueId scores) {
  if (moe.scores == Scores::kTopSoftmax) return b.softmax_last(scores);
  if (moe.norm_top_scores) {
    ValueId sum = b.sum_last(scores);
    if (moe.norm_epsilon != 0.0) sum = b.add(sum, b.scalar(static_cast<float>(moe.norm_epsilon)));
    if (moe.least_norm > 0.0) sum = b.clamp(sum, moe.least_norm, kNoLimit);
    scores = b.div(scores, sum);
  }
  return moe.scale == 1.0 ? scores : b.mul(scores, moe.scale);
}

// Returns one where ids i64 [T,1] name the expert, else zero: f32 [T,experts].
ValueId is_expert(GraphBuilder& b, const DecoderContext& c, ValueId ids) {
  const Dim count = experts(c.config.moe.experts);
  const ValueId all = b.unsqueeze(b.arange(0, c.config.moe.experts, count), 0);
  const ValueId zero = b.scalar(0.0F), one = b.scalar(1.0F);
  return b.where(b.eq(b.sub(all, ids), 0), one, zero);
}

// Returns the larger one of two values.
ValueId larger(GraphBuilder& b, ValueId x, ValueId y) { return b.add(y, b.relu(b.sub(x, y))); }

// Returns what the best one of `left` has of a softmax over those near it: f32 [T,1]. `left` is
// `logits` [T,experts] without the experts that were chosen before.
ValueId part_of_near(GraphBuilder& b, const MoeConfig& moe, ValueId logits, ValueId left,
                     ValueId best) {
  const ValueId below = b.relu(b.mul(logits, -1.0)), above = b.relu(logits);
  const ValueId most = larger(b, b.add(above, below), best);
  const ValueId distance = b.div(b.sub(best, left), most);
  const ValueId masked = b.scalar(kMaskedScore);
  return b.topk_last(b.softmax_last(b.where(b.gt(distance, moe.nearness), masked, left)), 1).first;
}

Route sparse_mixer(GraphBuilder& b, const DecoderContext& c, ValueId logits) {
  const auto [first, first_id] = b.topk_last(logits, 1);
  const ValueId taken = b.gt(is_expert(b, c, first_id), 0.5);
  const ValueId left = b.where(taken, b.scalar(kMaskedScore), logits);
  const auto [second, second_id] = b.topk_last(left, 1);
  const MoeConfig& moe = c.config.moe;
  return {.ids = b.cat({first_id, second_id}, 1),
          .scores = b.cat({part_of_near(b, moe, logits, logits, first),
                           part_of_near(b, moe, logits, left, second)},
                          1)};
}

// Builds the router of a layer, as MoeConfig describes it. `rows` is [T,hidden]; `prefix` is
// "layers.N.feed_forward". Probes record router_logits.N f32 [T,experts] and the chosen experts,
// router_experts.N i64 [T,k]. Where the program takes the softmax values of the chosen experts
// without a lookup, router_weights.N f32 [T,k] records them. Where a bias helps to choose,
// router_choice.N f32 [T,experts] records the values that are compared.
Route routed(GraphBuilder& b, const DecoderContext& c, ValueId rows, int64_t layer,
             const std::string& prefix) {
  const MoeConfig& moe = c.config.moe;
  const Dim count = experts(moe.experts);
  const ValueId router =
      b.weight_f32(prefix + ".gate.weight", {count, features(c.config.hidden_size)});
  ValueId logits = b.linear(rows, router);
  if (moe.router_bias) logits = b.add(logits, b.weight(prefix + ".gate.bias", {count}));
  b.probe(fmt::format("router_logits.{}", layer), logits);
  if (moe.scores == Scores::kSparseMixer) {
    const Route route = sparse_mixer(b, c, logits);
    b.probe(fmt::format("router_experts.{}", layer), route.ids);
    return route;
  }
  const ValueId scores = scores_of(b, moe.scores, logits);
  Route route;
  if (moe.scores == Scores::kSoftmax && moe.top_groups == moe.groups && !moe.choice_bias) {
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
  if (moe.expert_scale) {
    const ValueId scales = b.view(b.weight_f32(prefix + ".gate.expert_scale", {count}), {count, 1});
    const Dim slots = b.graph()[route.ids].shape.back();
    route.scores = b.mul(route.scores, b.view(b.embedding(scales, route.ids), {c.tokens, slots}));
  }
  return route;
}

// Returns the name that graph/experts.h gives an activation.
std::string name_of(Activation activation) {
  switch (activation) {
    case Activation::kGelu:
      return "gelu";
    case Activation::kGeluTanh:
      return "gelu_tanh";
    case Activation::kRelu:
      return "relu";
    case Activation::kRelu2:  // refused where experts are read, as is the next
    case Activation::kQuickGelu:
    case Activation::kSilu:
      break;
  }
  return "silu";
}

// Experts without a gate, and the shared one: x [1,T,hidden].
ValueId ungated_experts(GraphBuilder& b, const DecoderContext& c, ValueId x, const Route& route,
                        const std::string& prefix) {
  const ModelConfig& g = c.config;
  const MoeConfig& moe = g.moe;
  const int64_t hidden = g.hidden_size;
  const bool latent = moe.latent_size > 0;
  const int64_t width = latent ? moe.latent_size : hidden;
  const ValueId in =
      latent ? projection(b, x, prefix + ".latent_in", hidden, width, g.mlp_bias) : x;
  const ValueId w1 = b.weight(prefix + ".experts.w1.weight",
                              {experts(moe.experts), features(moe.expert_size), features(width)});
  const ValueId w2 = b.weight(prefix + ".experts.w2.weight",
                              {experts(moe.experts), features(width), features(moe.expert_size)});
  const ValueId rows = b.view(in, {c.tokens, features(width)});
  ValueId sum = b.view(b.experts(rows, route.ids, route.scores, w1, ValueId{}, w2),
                       {batch(), c.tokens, features(width)});
  if (latent) sum = projection(b, sum, prefix + ".latent_out", width, hidden, g.mlp_bias);
  return b.add(sum, plain_mlp(b, g, x, prefix + ".shared", g.mlp_bias, moe.shared_size));
}

// Makes a row of its own for each token and each expert that it passes through, multiplied by the
// score: rows f32 [T * k,hidden]. The route then has one expert of score 1 for each row.
ValueId scored_rows(GraphBuilder& b, const DecoderContext& c, ValueId rows, Route& route) {
  const int64_t slots = c.config.moe.per_token, hidden = c.config.hidden_size;
  const Dim count = Dim::of(c.tokens.symbol, c.tokens.scale * slots, c.tokens.base * slots);
  const ValueId scores = b.unsqueeze(route.scores, 2);
  const ValueId many = b.mul(b.unsqueeze(rows, 1), scores);
  route.ids = b.view(route.ids, {count, 1});
  const ValueId none = b.mul(b.view(route.scores, {count, 1}), 0.0);
  route.scores = b.add(none, b.scalar(1.0F));
  return b.view(many, {count, features(hidden)});
}

// Adds up the rows that scored_rows() made of each token: [T * k,hidden] -> [T,hidden].
ValueId sum_of_slots(GraphBuilder& b, const DecoderContext& c, ValueId rows) {
  const int64_t slots = c.config.moe.per_token;
  if (slots == 1) return rows;
  const ValueId by_slot = b.view(rows, {c.tokens, slots, features(c.config.hidden_size)});
  ValueId sum = b.select(by_slot, 1, 0);
  for (int64_t slot = 1; slot < slots; ++slot) sum = b.add(sum, b.select(by_slot, 1, slot));
  return sum;
}

}  // namespace

ValueId sparse_mlp(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                   const std::string& prefix, ValueId routed_by) {
  const MoeConfig& moe = c.config.moe;
  const int64_t hidden = c.config.hidden_size;
  const auto rows_of = [&](ValueId value) { return b.view(value, {c.tokens, features(hidden)}); };
  ValueId rows = rows_of(x);
  Route route = routed(b, c, routed_by.valid() ? rows_of(routed_by) : rows, layer, prefix);
  if (moe.scores_input) rows = scored_rows(b, c, rows, route);
  if (!moe.gated) return ungated_experts(b, c, x, route, prefix);
  const ValueId w1 = b.weight(prefix + ".experts.w1.weight",
                              {experts(moe.experts), features(moe.expert_size), features(hidden)});
  const ValueId w3 = b.weight(prefix + ".experts.w3.weight",
                              {experts(moe.experts), features(moe.expert_size), features(hidden)});
  const ValueId w2 = b.weight(prefix + ".experts.w2.weight",
                              {experts(moe.experts), features(hidden), features(moe.expert_size)});
  GraphBuilder::ExpertBiases biases = {};
  if (moe.clamp) {  // rows of vectors, not matrices of linear layers
    biases.steepness = moe.clamp->steepness;
    biases.limit = moe.clamp->limit;
    biases.b1 = b.weight_f32(prefix + ".experts.w1.bias",
                             {experts(moe.experts), features(moe.expert_size)});
    biases.b3 = b.weight_f32(prefix + ".experts.w3.bias",
                             {experts(moe.experts), features(moe.expert_size)});
    biases.b2 = b.weight_f32(prefix + ".experts.w2.bias", {experts(moe.experts), features(hidden)});
  }
  ValueId made =
      b.experts(rows, route.ids, route.scores, w1, w3, w2, biases, name_of(c.config.activation));
  if (moe.scores_input) made = sum_of_slots(b, c, made);
  const ValueId sum = b.view(made, {batch(), c.tokens, features(hidden)});
  const auto scaled = [&](ValueId all) {
    return moe.sum_scale == 1.0 ? all : b.mul(all, moe.sum_scale);
  };
  if (moe.shared_size == 0) return scaled(sum);

  const ValueId shared = gated_mlp(b, c.config, x, prefix + ".shared", moe.shared_size);
  if (!moe.shared_gate) return scaled(b.add(sum, shared));
  const ValueId gate =
      b.sigmoid(b.linear(x, b.weight_f32(prefix + ".shared_gate.weight", {1, features(hidden)})));
  return b.add(sum, b.mul(shared, gate));
}

}  // namespace ferry::converters
