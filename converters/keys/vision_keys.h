// Key rules that vision families share.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "converters/keys/key_rule.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {

// Renames where each row stands for two keys: SOURCE.weight and SOURCE.bias. "{i}" counts `layers`.
std::vector<KeyRule> tower_rules(const std::string& prefix, int64_t layers,
                                 std::initializer_list<Rename> table);
// Renames of whole keys. "{i}" counts `layers`.
std::vector<KeyRule> tower_renames(const std::string& prefix, int64_t layers,
                                   std::initializer_list<Rename> table);

// SOURCE.weight (hidden_size, channels, patch_size, patch_size) of a convolution whose windows do
// not overlap, as the matrix of a linear (hidden_size, channels * patch_size^2), and SOURCE.bias.
std::vector<KeyRule> patch_rules(const std::string& source, const VisionConfig& vision);

// SOURCE.weight and, if `bias`, SOURCE.bias: rows [q | k | v] to layers.{i}.attention.wq, wk and wv
// of the tower.
std::vector<KeyRule> tower_qkv_rules(const std::string& source, const VisionConfig& vision);

}  // namespace ferry::converters
