#include "converters/keys/vision_tower_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "converters/keys/row_layouts.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {

KeyRule reshape_rule(const std::string& name, const std::string& source, const std::string& target,
                     const Shape& stored, const Shape& used, int64_t rows) {
  KeyRule rule;
  rule.name = name;
  rule.source = source;
  rule.expected_shape = [stored](const ModelConfig&) { return stored; };
  rule.targets = {{.name = target,
                   .rows = [rows](const ModelConfig&) { return RowOrder{run_piece(0, 0, rows)}; },
                   .shape = [used](const ModelConfig&) { return used; }}};
  return rule;
}

std::vector<KeyRule> matrix_rules(const std::string& source, const std::string& target,
                                  const Shape& stored, int64_t layers, bool bias) {
  const int64_t out = stored[0], in = stored[1];
  KeyRule rule = reshape_rule("convolution over one place as a matrix", source + ".weight",
                              target + ".weight", stored, {out, in}, out * in);
  rule.layers = layers;
  std::vector<KeyRule> rules = {std::move(rule)};
  const std::string from = source + ".bias", to = target + ".bias";
  if (bias) rules = concat({rules, tower_renames("", layers, {{from.c_str(), to.c_str()}})});
  return rules;
}

namespace {

// CLIP stores the class token as a vector, and the positions as a matrix.
std::vector<KeyRule> class_token_rules(const std::string& embeddings, const VisionConfig& vision) {
  const int64_t width = vision.hidden_size, rows = vision.patches() + 1;
  return {reshape_rule("class token", embeddings + "class_embedding", "vision.class_token", {width},
                       {1, 1, width}, width),
          reshape_rule("positions", embeddings + "position_embedding.weight",
                       "vision.positions.weight", {rows, width}, {1, rows, width}, rows)};
}

std::vector<KeyRule> embedding_rules(const std::string& embeddings, const VisionConfig& vision) {
  const std::string patches = embeddings + "patch_embedding";
  std::vector<KeyRule> all = vision.max_patches > 0
                                 ? tower_rules("", 0, {{patches.c_str(), "vision.patches"}})
                                 : patch_rules(patches, vision);
  if (vision.class_token) return concat({all, class_token_rules(embeddings, vision)});
  return concat({all, tower_renames(embeddings, 0,
                                    {{"position_embedding.weight", "vision.positions.weight"}})});
}

std::vector<KeyRule> layers_behind(const std::string& layers, const VisionConfig& vision) {
  std::vector<KeyRule> all;
  for (int64_t layer = vision.depth(); layer < vision.num_layers; ++layer) {
    all.push_back(drop_rule(fmt::format("{}{}.*", layers, layer), "layer behind the features"));
  }
  return all;
}

// Drops the tensors that no feature depends on.
std::vector<KeyRule> dropped_rules(const std::string& tower, const VisionConfig& vision) {
  std::vector<KeyRule> all = {
      drop_rule(tower + "head.*", "pooling head: its output is not used"),
      drop_rule(tower + "embeddings.position_ids", "numbers of the positions")};
  if (!vision.final_norm) {
    all.push_back(drop_rule(tower + "post_layernorm.*", "norm behind the features"));
  }
  return concat({all, layers_behind(tower + "encoder.layers.", vision)});
}

}  // namespace

std::vector<KeyRule> patch_rules(const std::string& source, const VisionConfig& vision) {
  Shape stored = {vision.hidden_size, vision.channels, vision.patch_size, vision.patch_size};
  if (vision.any_shape) stored.insert(stored.begin() + 2, vision.any_shape->temporal_patch_size);
  KeyRule weight =
      reshape_rule("convolution of patches as a matrix", source + ".weight",
                   "vision.patches.weight", stored, {vision.hidden_size, vision.patch_values()},
                   vision.hidden_size * vision.patch_values() / vision.patch_size);
  if (vision.any_shape && !vision.any_shape->patch_bias) return {std::move(weight)};
  return {std::move(weight),
          tower_renames("", 0, {{(source + ".bias").c_str(), "vision.patches.bias"}}).front()};
}

std::vector<KeyRule> siglip_rules(const std::string& tower, const VisionConfig& vision) {
  const std::string layer = tower + "encoder.layers.{i}.";
  return concat({embedding_rules(tower + "embeddings.", vision),
                 tower_rules(tower, 0, {{"pre_layrnorm", "vision.pre_norm"}}),
                 tower_rules(layer, vision.depth(),
                             {{"layer_norm1", "vision.layers.{i}.attention_norm"},
                              {"self_attn.q_proj", "vision.layers.{i}.attention.wq"},
                              {"self_attn.k_proj", "vision.layers.{i}.attention.wk"},
                              {"self_attn.v_proj", "vision.layers.{i}.attention.wv"},
                              {"self_attn.out_proj", "vision.layers.{i}.attention.wo"},
                              {"layer_norm2", "vision.layers.{i}.ffn_norm"},
                              {"mlp.fc1", "vision.layers.{i}.feed_forward.w1"},
                              {"mlp.fc2", "vision.layers.{i}.feed_forward.w2"}}),
                 vision.final_norm ? tower_rules(tower, 0, {{"post_layernorm", "vision.norm"}})
                                   : std::vector<KeyRule>(),
                 dropped_rules(tower, vision)});
}

void add_row_marks(std::vector<KeyRule>& rules) {
  const auto rows = [](const ModelConfig& config) {
    const RowMarks& marks = *config.vision->row_marks;
    return RowOrder{run_piece(0, marks.row, 1), run_piece(0, marks.picture, 1)};
  };
  for (KeyRule& rule : rules) {
    if (std::ranges::count(rule.targets, "tok_embeddings.weight", &RuleTarget::name) == 0) continue;
    rule.targets.push_back({.name = kRowMarksWeight, .rows = rows});
  }
}

std::vector<KeyRule> pixtral_rules(const std::string& tower, const VisionConfig& vision) {
  const std::string layers = tower + "transformer.layers.";
  std::vector<KeyRule> behind = layers_behind(layers, vision);
  return concat(
      {{reshape_rule("convolution of patches as a matrix", tower + "patch_conv.weight",
                     "vision.patches.weight",
                     {vision.hidden_size, vision.channels, vision.patch_size, vision.patch_size},
                     {vision.hidden_size, vision.patch_values()},
                     vision.hidden_size * vision.patch_values() / vision.patch_size)},
       tower_renames(tower, 0, {{"ln_pre.weight", "vision.pre_norm.weight"}}),
       tower_renames(
           layers + "{i}.", vision.depth(),
           {{"attention_norm.weight", "vision.layers.{i}.attention_norm.weight"},
            {"attention.q_proj.weight", "vision.layers.{i}.attention.wq.weight"},
            {"attention.k_proj.weight", "vision.layers.{i}.attention.wk.weight"},
            {"attention.v_proj.weight", "vision.layers.{i}.attention.wv.weight"},
            {"attention.o_proj.weight", "vision.layers.{i}.attention.wo.weight"},
            {"ffn_norm.weight", "vision.layers.{i}.ffn_norm.weight"},
            {"feed_forward.gate_proj.weight", "vision.layers.{i}.feed_forward.w1.weight"},
            {"feed_forward.up_proj.weight", "vision.layers.{i}.feed_forward.w3.weight"},
            {"feed_forward.down_proj.weight", "vision.layers.{i}.feed_forward.w2.weight"}}),
       behind});
}

}  // namespace ferry::converters
