// nearest_key() suggests what an unknown key of a checkpoint may have been meant to be.
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

}  // namespace ferry::converters
