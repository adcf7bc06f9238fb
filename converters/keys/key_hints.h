// Keys that messages about a checkpoint name: those that it may have meant, and those that it
// lacks.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Returns the known key with the smallest edit distance to `key`, with the layer number of `key`,
// as the file names it; empty if none is close. `names` are KeyedTensors::names.
std::string nearest_key(const std::vector<KeyRule>& rules,
                        const std::unordered_map<std::string, std::string>& names,
                        const std::string& key);

// Returns the source key that a rule would make `target` of ("model.layers.3.mlp.up_proj.weight"),
// or an empty string. If several rules make the target, the rule counts that is most like one which
// other keys of the checkpoint match, because their prefixes are equal.
std::string expected_key(const std::vector<KeyRule>& rules, const std::string& target,
                         const std::vector<bool>& matched = {});

}  // namespace ferry::converters
