// Key rules that vision families share.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "converters/keys/key_rule.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {

// Renames of parameters: each row stands for SOURCE.weight and SOURCE.bias. "{i}" counts `layers`.
std::vector<KeyRule> tower_rules(const std::string& prefix, int64_t layers,
                                 std::initializer_list<Rename> table);
// Renames of whole keys. "{i}" counts `layers`.
std::vector<KeyRule> tower_renames(const std::string& prefix, int64_t layers,
                                   std::initializer_list<Rename> table);

// Rules for SOURCE.weight (hidden_size, channels, patch_size, patch_size) of a convolution whose
// windows do not overlap, which becomes the matrix of a linear (hidden_size, channels *
// patch_size^2), and for SOURCE.bias.
std::vector<KeyRule> patch_rules(const std::string& source, const VisionConfig& vision);

// Rules for SOURCE.weight and, if `bias`, SOURCE.bias: the rows [q | k | v] become
// layers.{i}.attention.wq, wk and wv of the tower.
std::vector<KeyRule> tower_qkv_rules(const std::string& source, const VisionConfig& vision);

}  // namespace ferry::converters
