#include "converters/keys/expert_keys.h"

#include <fmt/format.h>

#include <string>

#include "converters/blocks/decoder.h"
#include "converters/config/type_parts.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/undo_keys.h"

namespace ferry::converters {
namespace {

Shape wide_shape(const ModelConfig& c) { return {c.moe.expert_size, c.hidden_size}; }
Shape narrow_shape(const ModelConfig& c) { return {c.hidden_size, c.moe.expert_size}; }

// Experts without a gate may be between two projections of all tokens.
int64_t plain_width(const ModelConfig& c) {
  return c.moe.latent_size > 0 ? c.moe.latent_size : c.hidden_size;
}
Shape plain_up(const ModelConfig& c) { return {c.moe.expert_size, plain_width(c)}; }
Shape plain_down(const ModelConfig& c) { return {plain_width(c), c.moe.expert_size}; }

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

Shape clamped_wide(const ModelConfig& c) {
  return {c.moe.experts, c.moe.expert_size, c.hidden_size};
}
Shape clamped_narrow(const ModelConfig& c) {
  return {c.moe.experts, c.hidden_size, c.moe.expert_size};
}
Shape clamped_bias(const ModelConfig& c) { return {c.moe.experts, c.moe.expert_size}; }

constexpr const char* kClampedTargets = "layers.{i}.feed_forward.experts.";

// Takes every second output, from `first` on.
RuleTarget every_second(const char* matrix, int64_t first) {
  return {.name = kClampedTargets + std::string(matrix) + ".weight",
          .rows =
              [first](const ModelConfig& c) {
                const int64_t outputs = 2 * c.moe.expert_size, hidden = c.hidden_size;
                return RowOrder{{.offset = first,
                                 .axes = {{c.moe.experts, hidden * outputs},
                                          {c.moe.expert_size, 2},
                                          {hidden, outputs}}}};
              },
          .shape = clamped_wide,
          .elements = true};
}

RuleTarget every_second_bias(const char* matrix, int64_t first) {
  return {
      .name = kClampedTargets + std::string(matrix) + ".bias",
      .rows =
          [first](const ModelConfig& c) {
            return RowOrder{{.offset = first, .axes = {{c.moe.experts * c.moe.expert_size, 2}}}};
          },
      .shape = clamped_bias,
      .elements = true};
}

// Takes rows of dequantised blocks, whose matrices are not transposed. The matrices of all experts
// follow one another.
RuleTarget rows_of_blocks(const char* matrix, int64_t first, int64_t step,
                          Shape (*shape)(const ModelConfig&)) {
  return {.name = kClampedTargets + std::string(matrix) + ".weight",
          .rows =
              [=](const ModelConfig& c) {
                const Shape made = shape(c);
                return RowOrder{{.offset = first, .axes = {{made[0] * made[1], step}}}};
              },
          .shape = shape};
}

KeyRule clamped_rule(const char* name, const std::string& source, std::vector<RuleTarget> targets,
                     Shape (*shape)(const ModelConfig&)) {
  KeyRule made;
  made.name = name;
  made.source = source;
  made.targets = std::move(targets);
  made.expected_shape = shape;
  return made;
}

// Rules for gate and up in one tensor, and for GGUF, which has them in two.
std::vector<KeyRule> granite_mlp_rules(const std::string& layer, const ModelConfig& config) {
  const std::string mlp = layer + "shared_mlp.";
  std::vector<KeyRule> rules = concat(
      {packed_gate_up_rules(mlp + "input_linear", /*bias=*/false, PackedLayout::kConcatenated),
       dialect_rules(
           rename_rules(mlp, {{"gate_proj.weight", "layers.{i}.feed_forward.w1.weight"},
                              {"up_proj.weight", "layers.{i}.feed_forward.w3.weight"}}))});
  if (config.moe.experts == 0) {
    return concat({rules, rename_rules(mlp, {{"output_linear.weight",
                                              "layers.{i}.feed_forward.w2.weight"}})});
  }
  // In a model with experts, the MLP is a shared expert.
  for (KeyRule& rule : rules) {
    for (RuleTarget& target : rule.targets) target.name.insert(target.name.find(".w"), ".shared");
  }
  const std::string experts = layer + "block_sparse_moe.";
  return concat(
      {rules, fused_expert_rules(experts + "input_linear.weight", experts + "output_linear.weight"),
       dialect_rules(stacked_expert_rules(experts + "experts.{e}.", "gate_proj.weight",
                                          "up_proj.weight", "down_proj.weight")),
       rename_rules(mlp, {{"output_linear.weight", "layers.{i}.feed_forward.shared.w2.weight"}}),
       rename_rules(experts, {{"router.layer.weight", "layers.{i}.feed_forward.gate.weight"}})});
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

std::vector<KeyRule> plain_expert_rules(const std::string& experts) {
  const auto fused = [](const std::string& key, const char* matrix,
                        Shape (*shape)(const ModelConfig&)) {
    KeyRule rule;
    rule.name = "fused experts";
    rule.source = key;
    rule.targets = {{std::string("layers.{i}.feed_forward.experts.") + matrix + ".weight"}};
    rule.expected_shape = [shape](const ModelConfig& c) {
      Shape all = shape(c);
      all.insert(all.begin(), c.moe.experts);
      return all;
    };
    return rule;
  };
  return {stack_rule(experts + "{e}.up_proj.weight", "w1", plain_up),
          stack_rule(experts + "{e}.down_proj.weight", "w2", plain_down),
          fused(experts + "up_proj", "w1", plain_up),
          fused(experts + "down_proj", "w2", plain_down)};
}

std::vector<KeyRule> transposed_expert_rules(const std::string& gate_up_key,
                                             const std::string& down_key) {
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
  return {gate_up, down};
}

std::vector<KeyRule> either_way_expert_rules(const std::string& gate_up_key,
                                             const std::string& down_key) {
  std::vector<KeyRule> rules = concat(
      {fused_expert_rules(gate_up_key, down_key), transposed_expert_rules(gate_up_key, down_key)});
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

std::vector<KeyRule> deepseek_expert_rules(const std::string& prefix, const ModelConfig& config) {
  std::vector<KeyRule> rules = expert_rules(prefix, config);
  for (int64_t i = 0; i < config.number(kPredictionLayers); ++i) {
    rules.push_back(drop_rule(fmt::format("{}layers.{}.*", prefix, config.num_layers + i),
                              "multi-token prediction: not part of the model's output"));
  }
  if (config.moe.experts == 0) return rules;
  return concat({rules, shared_experts_rules(prefix, config),
                 rename_rules(prefix, {{"layers.{i}.mlp.gate.e_score_correction_bias",
                                        "layers.{i}.feed_forward.gate.choice_bias"}})});
}

std::vector<KeyRule> shared_experts_rules(const std::string& prefix, const ModelConfig& config) {
  return parameter_rules(prefix + "layers.{i}.mlp.shared_experts.", config.mlp_bias,
                         {{"gate_proj", "layers.{i}.feed_forward.shared.w1"},
                          {"up_proj", "layers.{i}.feed_forward.shared.w3"},
                          {"down_proj", "layers.{i}.feed_forward.shared.w2"}});
}

std::vector<KeyRule> clamped_expert_rules(const std::string& experts) {
  const RuleTarget down = {
      .name = kClampedTargets + std::string("w2.weight"),
      .rows =
          [](const ModelConfig& c) {
            const int64_t size = c.moe.expert_size, hidden = c.hidden_size;
            return RowOrder{
                {.offset = 0,
                 .axes = {{c.moe.experts, size * hidden}, {hidden, 1}, {size, hidden}}}};
          },
      .shape = clamped_narrow,
      .elements = true};
  const std::string each = experts + "{e}.";
  std::vector<KeyRule> rules = {
      clamped_rule("split transposed experts", experts + "gate_up_proj",
                   {every_second("w1", 0), every_second("w3", 1)},
                   [](const ModelConfig& c) {
                     return Shape{c.moe.experts, c.hidden_size, 2 * c.moe.expert_size};
                   }),
      clamped_rule("split biases of experts", experts + "gate_up_proj_bias",
                   {every_second_bias("w1", 0), every_second_bias("w3", 1)},
                   [](const ModelConfig& c) {
                     return Shape{c.moe.experts, 2 * c.moe.expert_size};
                   }),
      clamped_rule("transpose experts", experts + "down_proj", {down},
                   [](const ModelConfig& c) {
                     return Shape{c.moe.experts, c.moe.expert_size, c.hidden_size};
                   }),
      clamped_rule(
          "split blocks of experts", experts + "gate_up_proj_blocks",
          {rows_of_blocks("w1", 0, 2, clamped_wide), rows_of_blocks("w3", 1, 2, clamped_wide)},
          [](const ModelConfig& c) {
            return Shape{2 * c.moe.experts * c.moe.expert_size, c.hidden_size};
          }),
      clamped_rule("blocks of experts", experts + "down_proj_blocks",
                   {rows_of_blocks("w2", 0, 1, clamped_narrow)},
                   [](const ModelConfig& c) {
                     return Shape{c.moe.experts * c.hidden_size, c.moe.expert_size};
                   }),
      clamped_rule("biases of experts", experts + "down_proj_bias",
                   {{.name = kClampedTargets + std::string("w2.bias")}}, [](const ModelConfig& c) {
                     return Shape{c.moe.experts, c.hidden_size};
                   })};
  // GGUF has separate tensors for gate and up, and transposes nothing.
  return concat(
      {rules,
       dialect_rules(concat(
           {stacked_expert_rules(each, "gate_proj.weight", "up_proj.weight", "down_proj.weight"),
            rename_rules(experts,
                         {{"gate_proj_bias", "layers.{i}.feed_forward.experts.w1.bias"},
                          {"up_proj_bias", "layers.{i}.feed_forward.experts.w3.bias"}})}))});
}

std::vector<KeyRule> granite_moe_rules(const ModelConfig& config, const std::string& prefix) {
  // A checkpoint made of weights gets the first rules for an MLP.
  return concat({granite_mlp_rules(prefix + "layers.{i}.", config), llama_rules(config, prefix)});
}

}  // namespace ferry::converters
