#include "converters/keys/layout_keys.h"

#include <utility>

#include "converters/keys/standard_keys.h"

namespace ferry::converters {
namespace {

struct HeadNorm {
  std::string source, target;
  int64_t heads;
};

std::vector<HeadNorm> head_norms(const ModelConfig& config, const char* rest) {
  return {{std::string("q") + rest, "layers.{i}.attention.q_norm.weight", config.num_heads},
          {std::string("k") + rest, "layers.{i}.attention.k_norm.weight", config.num_kv_heads}};
}

std::function<Shape(const ModelConfig&)> always(Shape shape) {
  return [shape = std::move(shape)](const ModelConfig&) { return shape; };
}

// Returns the columns [part * out, (part + 1) * out) of a matrix (in, columns) as rows.
RowOrder transposed_columns(int64_t part, int64_t in, int64_t out, int64_t columns) {
  StridedPiece piece{.offset = part * out};
  add_axis(piece, {out, 1});
  add_axis(piece, {in, columns});
  return {std::move(piece)};
}

// Rules for SOURCE.weight (in, parts * out) and SOURCE.bias. Their columns become, part by part,
// TARGET.weight (out, in) and TARGET.bias of each target. GGUF has the rows of SOURCE.weight.T.
std::vector<KeyRule> conv1d(const std::string& source, const std::vector<std::string>& targets,
                            int64_t in, int64_t out) {
  const int64_t columns = std::ssize(targets) * out;
  KeyRule weight, bias, rowwise;
  weight.name = bias.name = rowwise.name =
      targets.size() > 1 ? "split Conv1D [q | k | v]" : "Conv1D";
  weight.source = source + ".weight";
  weight.expected_shape = always({in, columns});
  bias.source = source + ".bias";
  bias.expected_shape = always({columns});
  rowwise.source = source + ".weight.T";
  rowwise.expected_shape = always({columns, in});
  for (int64_t part = 0; part < std::ssize(targets); ++part) {
    const std::string& target = targets[static_cast<size_t>(part)];
    weight.targets.push_back(
        {.name = target + ".weight",
         .rows = [=](const ModelConfig&) { return transposed_columns(part, in, out, columns); },
         .shape = always({out, in}),
         .elements = true});
    const auto rows = [=](const ModelConfig&) { return RowOrder{run_piece(0, part * out, out)}; };
    bias.targets.push_back({.name = target + ".bias", .rows = rows});
    rowwise.targets.push_back({.name = target + ".weight", .rows = rows});
  }
  return {std::move(weight), std::move(bias), std::move(rowwise)};
}

}  // namespace

std::vector<KeyRule> conv1d_rules(const std::string& layer, const ModelConfig& config) {
  const std::string to = "layers.{i}.";
  const int64_t hidden = config.hidden_size, inner = config.intermediate_size;
  const std::vector<std::string> qkv = {to + "attention.wq", to + "attention.wk",
                                        to + "attention.wv"};
  return concat({conv1d(layer + "attn.c_attn", qkv, hidden, hidden),
                 conv1d(layer + "attn.c_proj", {to + "attention.wo"}, hidden, hidden),
                 conv1d(layer + "mlp.c_fc", {to + "feed_forward.w1"}, hidden, inner),
                 conv1d(layer + "mlp.c_proj", {to + "feed_forward.w2"}, inner, hidden)});
}

std::vector<KeyRule> paired_head_norm_rules(const std::string& prefix, const ModelConfig& config) {
  std::vector<KeyRule> rules;
  for (const auto& [source, target, heads] : head_norms(config, "_norm.weight")) {
    KeyRule rule;
    rule.name = "RoPE pairs to halves in " + target;
    rule.source = prefix + source;
    rule.expected_shape = always({heads, config.head_dim});
    rule.targets = {{.name = target,
                     .rows =
                         [count = heads](const ModelConfig& c) {
                           return pairs_to_halves(count, c.head_dim, c.rotary_dim());
                         },
                     .shape = rule.expected_shape,
                     .elements = true}};
    rules.push_back(std::move(rule));
  }
  return rules;
}

std::vector<KeyRule> separate_head_norm_rules(const std::string& prefix,
                                              const ModelConfig& config) {
  std::vector<KeyRule> rules;
  for (const auto& [source, target, heads] : head_norms(config, "_layernorm.norms.{e}.weight")) {
    KeyRule rule;
    rule.name = "stack norms of heads";
    rule.kind = KeyRule::Kind::kStack;
    rule.source = prefix + source;
    rule.stacked = heads;
    rule.expected_shape = always({config.head_dim});
    rule.targets = {{.name = target}};
    rules.push_back(std::move(rule));
  }
  return rules;
}

}  // namespace ferry::converters
