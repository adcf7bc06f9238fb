// sentence_embedding() makes one vector of the states of a text, as a folder of
// sentence-transformers says.
#pragma once

#include <string>
#include <vector>

#include "converters/blocks/blocks.h"
#include "converters/blocks/decoder_context.h"
#include "converters/config/sentence_config.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Makes one vector of the states of each text: f32 [1,T,width] -> f32 [N,config.width(width)]. N is
// 1 unless the context has several texts.
ValueId sentence_embedding(GraphBuilder& b, const DecoderContext& c, const SentenceConfig& config,
                           ValueId states);

// Pools the states of each text, or other values of its tokens, f32 [1,T,width] -> f32
// [N,width * poolings].
ValueId pooled_states(GraphBuilder& b, const DecoderContext& c,
                      const std::vector<SentenceConfig::Pooling>& poolings, ValueId states);

// Returns whether sentence_embedding() can do so for several texts. A program has no operator for
// the largest values of each text.
bool pools_several_texts(const SentenceConfig& config);

// Returns the key of a parameter of a dense module in a checkpoint: "2_Dense.linear.weight".
std::string sentence_key(const SentenceModule& module, const std::string& parameter);

// Rules for the weights of the dense modules.
std::vector<KeyRule> sentence_rules(const SentenceConfig& config);

// Returns kBadInput unless every module takes the width that the module before it gives. `width` is
// the width of the states.
Status check_sentence_widths(const SentenceConfig& config, int64_t width);

}  // namespace ferry::converters
