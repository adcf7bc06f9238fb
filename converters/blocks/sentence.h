// sentence_embedding() makes one vector of the states of a text, as a folder of
// sentence-transformers says.
#pragma once

#include <string>
#include <vector>

#include "converters/blocks/blocks.h"
#include "converters/config/sentence_config.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Makes one vector of the states of all tokens: f32 [1,T,width] -> f32 [1,config.width(width)].
ValueId sentence_embedding(GraphBuilder& b, const SentenceConfig& config, ValueId states);

// Returns the key of a parameter of a dense module in a checkpoint: "2_Dense.linear.weight".
std::string sentence_key(const SentenceModule& module, const std::string& parameter);

// Rules for the weights of the dense modules.
std::vector<KeyRule> sentence_rules(const SentenceConfig& config);

// Returns kBadInput unless every module takes the width that the module before it gives. `width` is
// the width of the states.
Status check_sentence_widths(const SentenceConfig& config, int64_t width);

}  // namespace ferry::converters
