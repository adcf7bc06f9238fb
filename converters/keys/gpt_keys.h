// Keys that GPT-2 and CodeGen have in common.
#pragma once

#include <string>
#include <vector>

#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Below `prefix`: wte, h.N.ln_1 and ln_f. Drops what h.N.attn has beside weights.
std::vector<KeyRule> gpt_rules(const std::string& prefix);

}  // namespace ferry::converters
