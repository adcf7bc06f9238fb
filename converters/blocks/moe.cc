#include "converters/blocks/moe.h"

#include <fmt/format.h>

#include <string>
#include <tuple>

#include "converters/blocks/blocks.h"
#include "converters/blocks/decoder_context.h"
#include "converters/keys/standard_keys.h"

// The order of nodes determines the bytes of a program, and compilers differ in which argument of a
// call they evaluate first. So at most one argument of a call appends nodes.

namespace ferry::converters {
namespace {

// The experts that each token passes through, and the factors of their outputs.
struct Route {
  ValueId ids;     // i64 [T,k]
  ValueId scores;  // f32 [T,k]
};

Shape wide_shape(const ModelConfig& c) { return {c.moe.expert_size, c.hidden_size}; }
Shape narrow_shape(const ModelConfig& c) { return {c.hidden_size, c.moe.expert_size}; }

KeyRule stack_rule(const std::string& source, const char* matrix,
                   Shape (*shape)(const ModelConfig&)) {
  KeyRule rule;
  rule.name = std::string("stack experts ") + matrix;
  rule.kind = KeyRule::Kind::kStack;
  rule.source = source;
  rule.targets = {{std::string("layers.{i}.feed_forward.experts.") + matrix + ".weight"}};
  rule.expected_shape = shape;
  return rule;
}

// Takes the first or the second half of the rows of every expert's matrix, which has 2 *
// expert_size rows.
RuleTarget half_of_experts(const char* name, bool second) {
  return {name,
          [second](const ModelConfig& c) {
            const int64_t size = c.moe.expert_size;
            return RowOrder{
                {.offset = second ? size : 0, .axes = {{c.moe.experts, 2 * size}, {size, 1}}}};
          },
          [](const ModelConfig& c) {
            return Shape{c.moe.experts, c.moe.expert_size, c.hidden_size};
          }};
}

// Takes the `part`-th of `parts` groups of columns of every expert's matrix, as rows.
RuleTarget transposed_experts(const char* matrix, int64_t part, int64_t parts) {
  const auto shape = [parts](const ModelConfig& c) {
    return parts == 1 ? Shape{c.moe.experts, c.hidden_size, c.moe.expert_size}
                      : Shape{c.moe.experts, c.moe.expert_size, c.hidden_size};
  };
  return {.name = std::string("layers.{i}.feed_forward.experts.") + matrix + ".weight",
          .rows =
              [=](const ModelConfig& c) {
                const Shape made = shape(c);
                const int64_t columns = parts * made[1];
                return RowOrder{
                    {.offset = part * made[1],
                     .axes = {{made[0], made[2] * columns}, {made[1], 1}, {made[2], columns}}}};
              },
          .shape = shape,
          .elements = true};
}

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
    scores = b.div(scores, sum);
  }
  return moe.scale == 1.0 ? scores : b.mul(scores, moe.scale);
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

}  // namespace

std::vector<KeyRule> fused_expert_rules(const std::string& gate_up_key,
                                        const std::string& down_key) {
  KeyRule gate_up;
  gate_up.name = "split fused experts";
  gate_up.source = gate_up_key;
  gate_up.targets = {half_of_experts("layers.{i}.feed_forward.experts.w1.weight", false),
                     half_of_experts("layers.{i}.feed_forward.experts.w3.weight", true)};
  gate_up.expected_shape = [](const ModelConfig& c) {
    return Shape{c.moe.experts, 2 * c.moe.expert_size, c.hidden_size};
  };
  KeyRule down;
  down.name = "fused experts";
  down.source = down_key;
  down.targets = {{"layers.{i}.feed_forward.experts.w2.weight"}};
  down.expected_shape = [](const ModelConfig& c) {
    return Shape{c.moe.experts, c.hidden_size, c.moe.expert_size};
  };
  return {gate_up, down};
}

std::vector<KeyRule> either_way_expert_rules(const std::string& gate_up_key,
                                             const std::string& down_key) {
  std::vector<KeyRule> rules = fused_expert_rules(gate_up_key, down_key);
  KeyRule gate_up;
  gate_up.name = "split transposed experts";
  gate_up.source = gate_up_key;
  gate_up.targets = {transposed_experts("w1", 0, 2), transposed_experts("w3", 1, 2)};
  gate_up.expected_shape = [](const ModelConfig& c) {
    return Shape{c.moe.experts, c.hidden_size, 2 * c.moe.expert_size};
  };
  KeyRule down;
  down.name = "transpose experts";
  down.source = down_key;
  down.targets = {transposed_experts("w2", 0, 1)};
  down.expected_shape = [](const ModelConfig& c) {
    return Shape{c.moe.experts, c.moe.expert_size, c.hidden_size};
  };
  rules.insert(rules.end(), {gate_up, down});
  for (KeyRule& rule : rules) rule.by_shape = true;
  return rules;
}

std::vector<KeyRule> stacked_expert_rules(const std::string& expert, const char* gate,
                                          const char* up, const char* down) {
  return {stack_rule(expert + gate, "w1", wide_shape), stack_rule(expert + up, "w3", wide_shape),
          stack_rule(expert + down, "w2", narrow_shape)};
}

std::vector<KeyRule> expert_rules(const std::string& prefix, const ModelConfig& config) {
  if (config.moe.experts == 0) return {};
  const std::string experts = prefix + "layers.{i}.mlp.experts.";
  std::vector<KeyRule> rules =
      concat({rename_rules(prefix,
                           {{"layers.{i}.mlp.gate.weight", "layers.{i}.feed_forward.gate.weight"}}),
              stacked_expert_rules(experts + "{e}.", "gate_proj.weight", "up_proj.weight",
                                   "down_proj.weight"),
              fused_expert_rules(experts + "gate_up_proj", experts + "down_proj")});
  if (config.moe.shared_size == 0) return rules;
  return concat({rules, rename_rules(prefix, {{"layers.{i}.mlp.shared_expert.gate_proj.weight",
                                               "layers.{i}.feed_forward.shared.w1.weight"},
                                              {"layers.{i}.mlp.shared_expert.up_proj.weight",
                                               "layers.{i}.feed_forward.shared.w3.weight"},
                                              {"layers.{i}.mlp.shared_expert.down_proj.weight",
                                               "layers.{i}.feed_forward.shared.w2.weight"},
                                              {"layers.{i}.mlp.shared_expert_gate.weight",
                                               "layers.{i}.feed_forward.shared_gate.weight"}})});
}

std::vector<KeyRule> block_sparse_rules(const std::string& prefix, const ModelConfig& config) {
  if (config.moe.experts == 0) return {};
  const std::string block = prefix + "layers.{i}.block_sparse_moe.";
  return concat({rename_rules(block, {{"gate.weight", "layers.{i}.feed_forward.gate.weight"}}),
                 {stack_rule(block + "experts.{e}.w1.weight", "w1", wide_shape),
                  stack_rule(block + "experts.{e}.w3.weight", "w3", wide_shape),
                  stack_rule(block + "experts.{e}.w2.weight", "w2", narrow_shape)}});
}

ValueId sparse_mlp(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer,
                   const std::string& prefix) {
  const MoeConfig& moe = c.config.moe;
  const int64_t hidden = c.config.hidden_size;
  const ValueId rows = b.view(x, {c.tokens, features(hidden)});
  const Route route = routed(b, c, rows, layer, prefix);
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
  const ValueId sum = b.view(b.experts(rows, route.ids, route.scores, w1, w3, w2, biases),
                             {batch(), c.tokens, features(hidden)});
  if (moe.shared_size == 0) return sum;

  const ValueId shared = gated_mlp(b, c.config, x, prefix + ".shared", moe.shared_size);
  if (!moe.shared_gate) return b.add(sum, shared);
  const ValueId gate =
      b.sigmoid(b.linear(x, b.weight_f32(prefix + ".shared_gate.weight", {1, features(hidden)})));
  return b.add(sum, b.mul(shared, gate));
}

}  // namespace ferry::converters
