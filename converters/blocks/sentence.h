// sentence_embedding: one vector of the states of a text, as a folder of sentence-transformers
// says.
#pragma once

#include <string>
#include <vector>

#include "converters/blocks/graph_names.h"
#include "converters/config/sentence_config.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// The states of all tokens, f32 [1,T,width] -> f32 [1,config.width(width)].
ValueId sentence_embedding(GraphBuilder& b, const SentenceConfig& config, ValueId states);

// The key of a parameter of a dense module in a checkpoint: "2_Dense.linear.weight".
std::string sentence_key(const SentenceModule& module, const std::string& parameter);

// Names of the weights of the dense modules.
std::vector<KeyRule> sentence_rules(const SentenceConfig& config);

// kBadInput unless every module takes what the one before it gives. `width` is that of the states.
Status check_sentence_widths(const SentenceConfig& config, int64_t width);

}  // namespace ferry::converters
