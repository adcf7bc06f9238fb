// Keys that messages about a checkpoint name: those that it may have meant, and those that it
// lacks.
#pragma once

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "converters/keys/key_pattern.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Returns the known key with the smallest edit distance to `key`, with the layer number of `key`,
// as the file names it; empty if none is close. `names` are KeyedTensors::names.
std::string nearest_key(const std::vector<KeyRule>& rules,
                        const std::unordered_map<std::string, std::string>& names,
                        const std::string& key);

// Finds the source keys of weights.
class ExpectedKeys {
 public:
  // Both must outlive the object. `matched` says which rules keys of the checkpoint match.
  ExpectedKeys(const std::vector<KeyRule>& rules, const std::vector<bool>& matched);

  // Returns the source key that a rule would make `target` of
  // ("model.layers.3.mlp.up_proj.weight"), or an empty string. If several rules make the target,
  // the rule counts that is most like one which other keys of the checkpoint match, because their
  // prefixes are equal.
  std::string of(const std::string& target) const;

 private:
  const std::vector<KeyRule>& rules_;
  const std::vector<bool>& matched_;
  std::unordered_map<std::string, std::vector<size_t>> exact_;  // rules by targets without numbers
  std::vector<std::pair<KeyPattern, size_t>> patterns_;         // other targets, and their rules
};

}  // namespace ferry::converters
