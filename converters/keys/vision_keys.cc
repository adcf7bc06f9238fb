#include "converters/keys/vision_keys.h"

#include <utility>

namespace ferry::converters {
namespace {

KeyRule rename(const std::string& source, const std::string& target, int64_t layers) {
  KeyRule rule = rename_rules("", {{source.c_str(), target.c_str()}}).front();
  rule.layers = layers;
  return rule;
}

}  // namespace

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

std::vector<KeyRule> patch_rules(const std::string& source, const VisionConfig& vision) {
  KeyRule rule;
  rule.name = "convolution of patches as a matrix";
  rule.source = source + ".weight";
  const Shape stored = {vision.hidden_size, vision.channels, vision.patch_size, vision.patch_size};
  rule.expected_shape = [stored](const ModelConfig&) { return stored; };
  const Shape matrix = {vision.hidden_size, vision.patch_values()};
  const int64_t rows = stored[0] * stored[1] * stored[2];
  rule.targets = {{.name = "vision.patches.weight",
                   .rows = [rows](const ModelConfig&) { return RowOrder{run_piece(0, 0, rows)}; },
                   .shape = [matrix](const ModelConfig&) { return matrix; }}};
  return {std::move(rule), rename(source + ".bias", "vision.patches.bias", 0)};
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
