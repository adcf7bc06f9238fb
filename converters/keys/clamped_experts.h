// Keys of the experts of GPT-OSS. All experts are in one tensor, whose matrices are transposed, and
// gate and up take turns.
#pragma once

#include <string>
#include <vector>

#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Rules for the keys below `experts`, which ends with a dot: gate_up_proj (experts, hidden, 2 *
// size), down_proj (experts, size, hidden), gate_up_proj_bias and down_proj_bias. Dequantised MXFP4
// weights are the matrices gate_up_proj_blocks (experts * 2 * size, hidden) and down_proj_blocks
// (experts * hidden, size).
std::vector<KeyRule> clamped_expert_rules(const std::string& experts);

}  // namespace ferry::converters
