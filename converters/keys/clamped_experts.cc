#include "converters/keys/clamped_experts.h"

#include "converters/blocks/moe.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {
namespace {

Shape wide(const ModelConfig& c) { return {c.moe.experts, c.moe.expert_size, c.hidden_size}; }
Shape narrow(const ModelConfig& c) { return {c.moe.experts, c.hidden_size, c.moe.expert_size}; }
Shape wide_bias(const ModelConfig& c) { return {c.moe.experts, c.moe.expert_size}; }

constexpr const char* kTargets = "layers.{i}.feed_forward.experts.";

// Takes every second output, from `first` on.
RuleTarget half(const char* matrix, int64_t first) {
  return {.name = kTargets + std::string(matrix) + ".weight",
          .rows =
              [first](const ModelConfig& c) {
                const int64_t outputs = 2 * c.moe.expert_size, hidden = c.hidden_size;
                return RowOrder{{.offset = first,
                                 .axes = {{c.moe.experts, hidden * outputs},
                                          {c.moe.expert_size, 2},
                                          {hidden, outputs}}}};
              },
          .shape = wide,
          .elements = true};
}

RuleTarget half_bias(const char* matrix, int64_t first) {
  return {
      .name = kTargets + std::string(matrix) + ".bias",
      .rows =
          [first](const ModelConfig& c) {
            return RowOrder{{.offset = first, .axes = {{c.moe.experts * c.moe.expert_size, 2}}}};
          },
      .shape = wide_bias,
      .elements = true};
}

// Takes rows of dequantised blocks, whose matrices are not transposed. The matrices of all experts
// follow one another.
RuleTarget rows_of_blocks(const char* matrix, int64_t first, int64_t step,
                          Shape (*shape)(const ModelConfig&)) {
  return {.name = kTargets + std::string(matrix) + ".weight",
          .rows =
              [=](const ModelConfig& c) {
                const Shape made = shape(c);
                return RowOrder{{.offset = first, .axes = {{made[0] * made[1], step}}}};
              },
          .shape = shape};
}

KeyRule rule(const char* name, const std::string& source, std::vector<RuleTarget> targets,
             Shape (*shape)(const ModelConfig&)) {
  KeyRule made;
  made.name = name;
  made.source = source;
  made.targets = std::move(targets);
  made.expected_shape = shape;
  return made;
}

}  // namespace

std::vector<KeyRule> clamped_expert_rules(const std::string& experts) {
  const RuleTarget down = {
      .name = kTargets + std::string("w2.weight"),
      .rows =
          [](const ModelConfig& c) {
            const int64_t size = c.moe.expert_size, hidden = c.hidden_size;
            return RowOrder{
                {.offset = 0,
                 .axes = {{c.moe.experts, size * hidden}, {hidden, 1}, {size, hidden}}}};
          },
      .shape = narrow,
      .elements = true};
  const std::string each = experts + "{e}.";
  std::vector<KeyRule> rules = {
      rule("split transposed experts", experts + "gate_up_proj", {half("w1", 0), half("w3", 1)},
           [](const ModelConfig& c) {
             return Shape{c.moe.experts, c.hidden_size, 2 * c.moe.expert_size};
           }),
      rule("split biases of experts", experts + "gate_up_proj_bias",
           {half_bias("w1", 0), half_bias("w3", 1)},
           [](const ModelConfig& c) {
             return Shape{c.moe.experts, 2 * c.moe.expert_size};
           }),
      rule("transpose experts", experts + "down_proj", {down},
           [](const ModelConfig& c) {
             return Shape{c.moe.experts, c.moe.expert_size, c.hidden_size};
           }),
      rule("split blocks of experts", experts + "gate_up_proj_blocks",
           {rows_of_blocks("w1", 0, 2, wide), rows_of_blocks("w3", 1, 2, wide)},
           [](const ModelConfig& c) {
             return Shape{2 * c.moe.experts * c.moe.expert_size, c.hidden_size};
           }),
      rule("blocks of experts", experts + "down_proj_blocks", {rows_of_blocks("w2", 0, 1, narrow)},
           [](const ModelConfig& c) {
             return Shape{c.moe.experts * c.hidden_size, c.moe.expert_size};
           }),
      rule("biases of experts", experts + "down_proj_bias",
           {{.name = kTargets + std::string("w2.bias")}}, [](const ModelConfig& c) {
             return Shape{c.moe.experts, c.hidden_size};
           })};
  // GGUF has separate tensors for gate and up, and transposes nothing.
  return concat(
      {rules, stacked_expert_rules(each, "gate_proj.weight", "up_proj.weight", "down_proj.weight"),
       rename_rules(experts, {{"gate_proj_bias", "layers.{i}.feed_forward.experts.w1.bias"},
                              {"up_proj_bias", "layers.{i}.feed_forward.experts.w3.bias"}})});
}

}  // namespace ferry::converters
