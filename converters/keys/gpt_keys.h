// Keys that GPT-2 and CodeGen have in common.
#pragma once

#include <string>
#include <vector>

#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Rules for wte, h.N.ln_1 and ln_f below `prefix`. The tensors of h.N.attn that are no weights are
// dropped.
std::vector<KeyRule> gpt_rules(const std::string& prefix);

}  // namespace ferry::converters
