#include "converters/keys/standard_keys.h"

#include <utility>

#include "converters/blocks/token_ranges.h"

namespace ferry::converters {
namespace {

KeyRule rename(const std::string& source, const std::string& target, int64_t layers) {
  KeyRule rule = rename_rules("", {{source.c_str(), target.c_str()}}).front();
  rule.layers = layers;
  return rule;
}

}  // namespace

std::vector<KeyRule> rename_rules(const std::string& prefix, std::initializer_list<Rename> table) {
  std::vector<KeyRule> rules;
  for (const Rename& row : table) {
    KeyRule rule;
    rule.name = std::string("rename ") + row.target;
    rule.source = prefix + row.source;
    rule.targets = {{.name = row.target}};
    rules.push_back(std::move(rule));
  }
  return rules;
}

std::vector<KeyRule> parameter_rules(const std::string& prefix, bool bias,
                                     std::initializer_list<Rename> table) {
  std::vector<KeyRule> rules;
  for (const Rename& row : table) {
    for (const char* parameter : {".weight", ".bias"}) {
      if (parameter == std::string_view(".bias") && !bias) continue;
      const std::string source = row.source + std::string(parameter);
      const std::string target = row.target + std::string(parameter);
      rules.push_back(rename_rules(prefix, {{source.c_str(), target.c_str()}}).front());
    }
  }
  return rules;
}

std::vector<KeyRule> attention_rules(const std::string& prefix, bool bias, const char* output) {
  const std::string attention = prefix + "layers.{i}.self_attn.";
  return concat({parameter_rules(attention, bias,
                                 {{"q_proj", "layers.{i}.attention.wq"},
                                  {"k_proj", "layers.{i}.attention.wk"},
                                  {"v_proj", "layers.{i}.attention.wv"},
                                  {output, "layers.{i}.attention.wo"}}),
                 {drop_rule(attention + "rotary_emb.inv_freq", "derived from the config")}});
}

std::vector<KeyRule> plain_mlp_rules(const std::string& prefix, bool bias, const std::string& up,
                                     const std::string& down, const std::string& layer) {
  return parameter_rules(
      prefix + layer, bias,
      {{up.c_str(), "layers.{i}.feed_forward.w1"}, {down.c_str(), "layers.{i}.feed_forward.w2"}});
}

std::vector<KeyRule> shifted_norm_rules(const std::string& prefix,
                                        std::initializer_list<Rename> table) {
  std::vector<KeyRule> rules = rename_rules(prefix, table);
  for (size_t i = 0; i < rules.size(); ++i) {
    rules[i].name = std::string("1 + w ") + (table.begin() + i)->target;
    rules[i].steps = {{.kind = graph::Step::Kind::kAdd, .value = 1.0}};
  }
  return rules;
}

KeyRule drop_rule(std::string source, std::string reason) {
  KeyRule rule;
  rule.name = "drop " + source;
  rule.kind = KeyRule::Kind::kDrop;
  rule.source = std::move(source);
  rule.reason = std::move(reason);
  return rule;
}

std::vector<KeyRule> derived_rules(const std::string& attention) {
  constexpr const char* kMask = "the causal mask is not a weight";
  return {drop_rule(attention + "bias", kMask), drop_rule(attention + "masked_bias", kMask),
          drop_rule(attention + "rotary_emb.inv_freq", "derived from the config")};
}

std::vector<KeyRule> standard_matrix_rules(const std::string& prefix) {
  std::vector<KeyRule> rules = rename_rules(
      prefix, {
                  {"embed_tokens.weight", "tok_embeddings.weight"},
                  {"layers.{i}.self_attn.q_proj.weight", "layers.{i}.attention.wq.weight"},
                  {"layers.{i}.self_attn.k_proj.weight", "layers.{i}.attention.wk.weight"},
                  {"layers.{i}.self_attn.v_proj.weight", "layers.{i}.attention.wv.weight"},
                  {"layers.{i}.self_attn.o_proj.weight", "layers.{i}.attention.wo.weight"},
                  {"layers.{i}.mlp.gate_proj.weight", "layers.{i}.feed_forward.w1.weight"},
                  {"layers.{i}.mlp.down_proj.weight", "layers.{i}.feed_forward.w2.weight"},
                  {"layers.{i}.mlp.up_proj.weight", "layers.{i}.feed_forward.w3.weight"},
              });
  rules.push_back(
      drop_rule(prefix + "layers.{i}.self_attn.rotary_emb.inv_freq", "derived from the config"));
  return rules;
}

std::vector<KeyRule> standard_norm_rules(const std::string& prefix) {
  return rename_rules(
      prefix, {
                  {"layers.{i}.input_layernorm.weight", "layers.{i}.attention_norm.weight"},
                  {"layers.{i}.post_attention_layernorm.weight", "layers.{i}.ffn_norm.weight"},
                  {"norm.weight", "norm.weight"},
              });
}

std::vector<KeyRule> standard_layer_norm_rules(const std::string& prefix) {
  return parameter_rules(prefix, /*bias=*/true,
                         {{"layers.{i}.input_layernorm", "layers.{i}.attention_norm"},
                          {"layers.{i}.post_attention_layernorm", "layers.{i}.ffn_norm"},
                          {"norm", "norm"}});
}

std::vector<KeyRule> bias_rules(const std::string& prefix, bool qkv, bool output, bool mlp) {
  std::vector<KeyRule> rules;
  const auto add = [&](std::initializer_list<Rename> table) {
    for (KeyRule& rule : rename_rules(prefix, table)) rules.push_back(std::move(rule));
  };
  if (qkv) {
    add({{"layers.{i}.self_attn.q_proj.bias", "layers.{i}.attention.wq.bias"},
         {"layers.{i}.self_attn.k_proj.bias", "layers.{i}.attention.wk.bias"},
         {"layers.{i}.self_attn.v_proj.bias", "layers.{i}.attention.wv.bias"}});
  }
  if (output) add({{"layers.{i}.self_attn.o_proj.bias", "layers.{i}.attention.wo.bias"}});
  if (mlp) {
    add({{"layers.{i}.mlp.gate_proj.bias", "layers.{i}.feed_forward.w1.bias"},
         {"layers.{i}.mlp.down_proj.bias", "layers.{i}.feed_forward.w2.bias"},
         {"layers.{i}.mlp.up_proj.bias", "layers.{i}.feed_forward.w3.bias"}});
  }
  return rules;
}

KeyRule position_rule(const std::string& source, int64_t skipped, int64_t before) {
  KeyRule rule;
  rule.name = "skip rows of position_embeddings.weight";
  rule.source = source;
  const auto rows = [=](const ModelConfig& config) { return before + config.max_positions; };
  rule.expected_rows = [=](const ModelConfig& config) { return skipped + rows(config); };
  rule.targets = {{.name = "position_embeddings.weight", .rows = [=](const ModelConfig& config) {
                     return RowOrder{run_piece(0, skipped, rows(config))};
                   }}};
  return rule;
}

KeyRule head_rule(const std::string& source) {
  return rename_rules("", {{source.c_str(), "output.weight"}}).front();
}

namespace {

// The tables of an encoder-decoder and its head are one, `shared`. A name with other values in the
// checkpoint is a weight of its own, as in the reference.
std::vector<TieRule> source_ties(const ModelConfig& config) {
  std::vector<TieRule> ties;
  for (const char* target :
       {"tok_embeddings.weight", "source.tok_embeddings.weight", "output.weight"}) {
    if (target == std::string_view("output.weight") && !config.tie_word_embeddings) continue;
    ties.push_back(
        {.name = "shared table", .target = target, .same_as = kSharedTable, .unless_stored = true});
  }
  // Where the checkpoint lacks `shared`, the first of the others stands for it.
  const std::vector<TieRule> again = ties;
  ties.insert(ties.end(), again.begin(), again.end());
  return ties;
}

}  // namespace

std::vector<TieRule> standard_ties(const ModelConfig& config) {
  if (config.source && config.own_source.empty()) return source_ties(config);
  std::vector<TieRule> ties;
  if (config.tie_word_embeddings && !config.is_encoder) {
    ties.push_back({.name = "tied head",
                    .target = "output.weight",
                    .same_as = "tok_embeddings.weight",
                    .unless_stored = config.tie_unless_stored});
  }
  const auto add_ties = [&](const TokenRangeConfig& range, bool pads) {
    for (TieRule& tie : range_ties(range, pads)) ties.push_back(std::move(tie));
  };
  if (config.vision && config.vision->mobilenet) add_ties(config.token_ranges.front(), false);
  if (config.audio && config.audio->usm && config.audio->usm->gemma3n) {
    add_ties(config.token_ranges.back(), true);
  }
  return ties;
}

std::vector<KeyRule> join_rules(const std::vector<std::string>& parts, const std::string& target,
                                Shape (*shape)(const ModelConfig&)) {
  std::vector<KeyRule> rules;
  for (const std::string& part : parts) {
    KeyRule& rule = rules.emplace_back();
    rule.name = "join the parts of " + target;
    rule.kind = KeyRule::Kind::kJoin;
    rule.source = part;
    rule.targets = {{target}};
    rule.parts = parts;
    rule.expected_shape = shape;
  }
  return rules;
}

std::vector<KeyRule> concat(std::initializer_list<std::vector<KeyRule>> lists) {
  std::vector<KeyRule> all;
  for (const std::vector<KeyRule>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

std::vector<KeyRule> tower_renames(const std::string& prefix, int64_t layers,
                                   std::initializer_list<Rename> table) {
  std::vector<KeyRule> rules;
  for (const Rename& row : table) rules.push_back(rename(prefix + row.source, row.target, layers));
  return rules;
}

std::vector<KeyRule> tower_rules(const std::string& prefix, int64_t layers,
                                 std::initializer_list<Rename> table) {
  std::vector<KeyRule> rules;
  for (const Rename& row : table) {
    for (const char* parameter : {".weight", ".bias"}) {
      rules.push_back(
          rename(prefix + row.source + parameter, std::string(row.target) + parameter, layers));
    }
  }
  return rules;
}

KeyRule transpose_rule(const std::string& source, const std::string& target, int64_t in,
                       int64_t out) {
  KeyRule rule;
  rule.name = "transpose " + target;
  rule.source = source;
  rule.expected_shape = [in, out](const ModelConfig&) { return Shape{in, out}; };
  StridedPiece piece;
  add_axis(piece, {out, 1});
  add_axis(piece, {in, out});
  rule.targets = {{.name = target,
                   .rows = [piece](const ModelConfig&) { return RowOrder{piece}; },
                   .shape =
                       [in, out](const ModelConfig&) {
                         return Shape{out, in};
                       },
                   .elements = true}};
  return rule;
}

std::vector<KeyRule> conv1d_window_rules(const std::string& source, const std::string& target,
                                         int64_t out, int64_t in, int64_t kernel) {
  KeyRule rule;
  rule.name = "convolution of windows as a matrix";
  rule.source = source + ".weight";
  const Shape stored = {out, in, kernel};
  rule.expected_shape = [stored](const ModelConfig&) { return stored; };
  StridedPiece piece;
  add_axis(piece, {out, in * kernel});
  add_axis(piece, {kernel, 1});
  add_axis(piece, {in, kernel});
  const Shape matrix = {out, kernel * in};
  rule.targets = {{.name = target + ".weight",
                   .rows = [piece](const ModelConfig&) { return RowOrder{piece}; },
                   .shape = [matrix](const ModelConfig&) { return matrix; },
                   .elements = true}};
  return {std::move(rule), rename(source + ".bias", target + ".bias", 0)};
}

std::vector<KeyRule> tower_qkv_rules(const std::string& source, const VisionConfig& vision) {
  constexpr const char* kParts[] = {"wq", "wk", "wv"};
  const int64_t size = vision.hidden_size;
  std::vector<KeyRule> rules;
  for (const std::string parameter : {".weight", ".bias"}) {
    if (parameter == ".bias" && !vision.qkv_bias) continue;
    KeyRule rule;
    rule.name = "split qkv [q | k | v]";
    rule.source = source + parameter;
    rule.layers = vision.num_layers;
    rule.expected_rows = [size](const ModelConfig&) { return 3 * size; };
    for (int64_t part = 0; part < 3; ++part) {
      rule.targets.push_back(
          {"vision.layers.{i}.attention." + std::string(kParts[part]) + parameter,
           [size, part](const ModelConfig&) { return RowOrder{run_piece(0, part * size, size)}; }});
    }
    rules.push_back(std::move(rule));
  }
  return rules;
}

}  // namespace ferry::converters
