// FamilySpec: everything Ferry knows about one model family, in one declarative file under
// families/.
#pragma once

#include <string>
#include <vector>

#include "converters/config/model_config.h"
#include "converters/keys/key_rule.h"
#include "graph/builder.h"
#include "graph/graph.h"

namespace ferry::converters {

// What the user chooses about the program; validated against the config.
struct BuildOptions {
  int64_t context_length = 0;  // positions of the KV caches
  int64_t prefill_length = 0;  // upper bound of T in one call
  bool all_logits = false;     // [1,T,V] instead of [1,V] of the last token
};

struct FamilySpec {
  std::vector<std::string> model_types;  // config model_type values this family serves
  std::vector<KeyRule> (*rules)(const ModelConfig&);
  std::vector<TieRule> (*ties)(const ModelConfig&);
  // Stateful style: forward(tokens i64 [1,T], input_pos i64 [1]) -> logits.
  Result<graph::Graph> (*build)(const ModelConfig&, const BuildOptions&);
  std::string base_prefix = "model.";  // of the keys that a model without its head has, too
};

// The one visible table of families.
const std::vector<const FamilySpec*>& all_families();
// By text_type, and where no family has it by model_type. kUnsupported with the list of what is
// supported; `name` begins the message.
Result<const FamilySpec*> find_family(const ModelConfig& config, const std::string& name);

}  // namespace ferry::converters
