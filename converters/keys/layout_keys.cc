#include "converters/keys/layout_keys.h"

#include <fmt/format.h>

#include <utility>

#include "converters/keys/standard_keys.h"
#include "converters/keys/undo_keys.h"

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
  weight.name = bias.name = targets.size() > 1 ? "split Conv1D [q | k | v]" : "Conv1D";
  rowwise.name = kDialectRule;
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

using Rows = std::function<RowOrder(const ModelConfig&, PackedLayout)>;

struct Part {
  const char* target;  // without the parameter's name
  Rows rows;
};
struct Packed {
  std::vector<Part> parts;
  const char* concatenated;  // the layouts, for the names of the rules
  const char* interleaved;
  int64_t (*row_count)(const ModelConfig&);
};

// Returns the two rules of one parameter, ".weight" or ".bias".
std::vector<KeyRule> rules_of(const Packed& packed, const std::string& name,
                              const std::string& parameter, OwnLayout own) {
  std::vector<KeyRule> rules;
  for (PackedLayout layout : {PackedLayout::kConcatenated, PackedLayout::kInterleaved}) {
    const bool concatenated = layout == PackedLayout::kConcatenated;
    KeyRule rule;
    rule.name = fmt::format("split {} {}", name.substr(name.rfind('.') + 1),
                            concatenated ? packed.concatenated : packed.interleaved);
    rule.source = name + parameter;
    for (const Part& part : packed.parts) {
      rule.targets.push_back(
          {part.target + parameter,
           [rows = part.rows, layout](const ModelConfig& config) { return rows(config, layout); }});
    }
    rule.expected_rows = packed.row_count;
    rule.layout = layout;
    rule.own_layout = own == layout;
    rules.push_back(std::move(rule));
  }
  return rules;
}

std::vector<KeyRule> with_bias(const Packed& packed, const std::string& name, bool bias,
                               OwnLayout own) {
  std::vector<KeyRule> rules = rules_of(packed, name, ".weight", own);
  return bias ? concat({rules, rules_of(packed, name, ".bias", own)}) : rules;
}

Part qkv_part(const char* target, QkvPart part) {
  return {target, [part](const ModelConfig& config, PackedLayout layout) {
            return fused_qkv_rows(config, layout, part);
          }};
}

Part gate_up_part(const char* target, GateUpPart part) {
  return {target, [part](const ModelConfig& config, PackedLayout layout) {
            return gate_up_rows(config, layout, part);
          }};
}

Part ba_part(const char* target, BaPart part) {
  return {target, [part](const ModelConfig& config, PackedLayout layout) {
            return ba_rows(config.linear, layout, part);
          }};
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

std::vector<KeyRule> packed_qkv_rules(const std::string& name, bool bias, OwnLayout own) {
  const Packed packed = {.parts = {qkv_part("layers.{i}.attention.wq", QkvPart::kQuery),
                                   qkv_part("layers.{i}.attention.wk", QkvPart::kKey),
                                   qkv_part("layers.{i}.attention.wv", QkvPart::kValue)},
                         .concatenated = "[q | k | v]",
                         .interleaved = "[q.. k v] per key-value head",
                         .row_count = fused_qkv_row_count};
  return with_bias(packed, name, bias, own);
}

std::vector<KeyRule> packed_gate_up_rules(const std::string& name, bool bias, OwnLayout own) {
  const Packed packed = {
      .parts = {gate_up_part("layers.{i}.feed_forward.w1", GateUpPart::kGate),
                gate_up_part("layers.{i}.feed_forward.w3", GateUpPart::kUp)},
      .concatenated = "[gate | up]",
      .interleaved = "[gate up] row by row",
      .row_count = [](const ModelConfig& config) { return 2 * config.intermediate_size; }};
  return with_bias(packed, name, bias, own);
}

std::vector<KeyRule> packed_delta_net_rules(const std::string& prefix, OwnLayout own) {
  const Packed qkvz = {
      .parts = {{"layers.{i}.attention.in_proj_qkv",
                 [](const ModelConfig& config, PackedLayout layout) {
                   return qkv_rows(config.linear, layout);
                 }},
                {"layers.{i}.attention.in_proj_z",
                 [](const ModelConfig& config, PackedLayout layout) {
                   return qkvz_rows(config.linear, layout, QkvzPart::kGate);
                 }}},
      .concatenated = "[q | k | v | z]",
      .interleaved = "[q k v.. z..] per key head",
      .row_count = [](const ModelConfig& config) { return qkvz_row_count(config.linear); }};
  const Packed ba = {
      .parts = {ba_part("layers.{i}.attention.in_proj_b", BaPart::kBeta),
                ba_part("layers.{i}.attention.in_proj_a", BaPart::kAlpha)},
      .concatenated = "[b | a]",
      .interleaved = "[b.. a..] per key head",
      .row_count = [](const ModelConfig& config) { return ba_row_count(config.linear); }};
  const std::string base = prefix + "layers.{i}.linear_attn.";
  return concat({rules_of(qkvz, base + "in_proj_qkvz", ".weight", own),
                 rules_of(ba, base + "in_proj_ba", ".weight", own)});
}

std::vector<KeyRule> paired_rope_rules(const std::string& name, bool bias,
                                       const std::string& target) {
  struct Projection {
    const char *source, *target;
    int64_t (*heads)(const ModelConfig&);
  };
  constexpr Projection kProjections[] = {
      {".q_proj", ".wq", [](const ModelConfig& c) { return c.num_heads; }},
      {".k_proj", ".wk", [](const ModelConfig& c) { return c.num_kv_heads; }}};
  std::vector<KeyRule> rules;
  for (const Projection& p : kProjections) {
    for (const std::string parameter : {".weight", ".bias"}) {
      if (parameter == ".bias" && !bias) continue;
      KeyRule rule;
      rule.name = fmt::format("RoPE pairs to halves in {}{}", target, p.target);
      rule.source = name + p.source + parameter;
      rule.targets = {{target + p.target + parameter, [heads = p.heads](const ModelConfig& c) {
                         return pairs_to_halves(heads(c), c.head_dim, c.rotary_dim());
                       }}};
      rule.expected_rows = [heads = p.heads](const ModelConfig& c) {
        return heads(c) * c.head_dim;
      };
      rules.push_back(std::move(rule));
    }
  }
  return rules;
}

std::vector<KeyRule> paired_matrix_rules(const std::string& prefix, bool qkv_bias, bool output_bias,
                                         bool mlp_bias) {
  std::vector<KeyRule> rules =
      concat({standard_matrix_rules(prefix), bias_rules(prefix, qkv_bias, output_bias, mlp_bias)});
  std::erase_if(rules, [](const KeyRule& rule) {
    return rule.source.find(".q_proj.") != std::string::npos ||
           rule.source.find(".k_proj.") != std::string::npos;
  });
  return concat({paired_rope_rules(prefix + "layers.{i}.self_attn", qkv_bias), rules});
}

KeyRule codegen_qkv_rule(const std::string& source) {
  const auto turned = [](QkvPart part) {
    return [part](const ModelConfig& c) {
      return select(codegen_qkv_rows(c, part),
                    pairs_to_halves(c.num_heads, c.head_dim, c.rotary_dim()));
    };
  };
  KeyRule rule;
  rule.name = "split qkv_proj [q | v | k] per block, RoPE pairs to halves";
  rule.source = source;
  rule.targets = {
      {"layers.{i}.attention.wq.weight", turned(QkvPart::kQuery)},
      {"layers.{i}.attention.wk.weight", turned(QkvPart::kKey)},
      {"layers.{i}.attention.wv.weight",
       [](const ModelConfig& c) { return codegen_qkv_rows(c, QkvPart::kValue); }},
  };
  rule.expected_rows = [](const ModelConfig& c) { return 3 * c.q_size(); };
  return rule;
}

std::vector<KeyRule> packed_export_rules(const std::string& prefix, bool qkv_bias, bool mlp_bias) {
  const std::string layer = prefix + "layers.{i}.";
  return concat({packed_qkv_rules(layer + "self_attn.qkv_proj", qkv_bias, std::nullopt),
                 packed_gate_up_rules(layer + "mlp.gate_up_proj", mlp_bias, std::nullopt)});
}

std::vector<KeyRule> query_key_value_rules(const std::string& layer, const std::string& attention,
                                           bool bias) {
  return concat(
      {packed_qkv_rules(layer + attention + "query_key_value", bias, PackedLayout::kInterleaved),
       parameter_rules(layer + attention, bias, {{"dense", "layers.{i}.attention.wo"}}),
       derived_rules(layer + attention)});
}

std::vector<KeyRule> gpt_rules(const std::string& prefix) {
  return concat({rename_rules(prefix, {{"wte.weight", "tok_embeddings.weight"}}),
                 parameter_rules(prefix, /*bias=*/true,
                                 {{"h.{i}.ln_1", "layers.{i}.attention_norm"}, {"ln_f", "norm"}}),
                 derived_rules(prefix + "h.{i}.attn.")});
}

}  // namespace ferry::converters
