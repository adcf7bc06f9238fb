#include "converters/blocks/moe.h"

#include <fmt/format.h>

#include "converters/blocks/axes.h"
#include "converters/blocks/blocks.h"
#include "converters/blocks/router.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {
namespace {

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

// The first or the second half of the rows of every expert's matrix, which has 2 * expert_size
// rows.
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

// The `part`-th of `parts` groups of columns of every expert's matrix, as rows.
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
  if (moe.clamp) {  // rows of vectors, no matrices of linear layers
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
