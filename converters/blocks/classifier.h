// classifier_outputs() puts the head of a classifier behind the states of a text.
#pragma once

#include <vector>

#include "converters/blocks/blocks.h"
#include "converters/blocks/decoder_context.h"
#include "converters/config/classifier_config.h"
#include "converters/keys/key_rule.h"

namespace ferry::converters {

// Returns the outputs of the head for the states f32 [1,T,width]: f32 [N,labels] for N texts, or
// f32 [1,T,labels] where every token has labels. N is 1 unless the context has several texts.
ValueId classifier_outputs(GraphBuilder& b, const DecoderContext& c, const ClassifierConfig& config,
                           ValueId states);

// Rules for the weights of the head.
std::vector<KeyRule> classifier_rules(const ClassifierConfig& config);

// Whether the head has keys that `pattern`, of a rule that drops keys, stands for.
bool has_head_key(const ClassifierConfig& config, std::string_view pattern);

}  // namespace ferry::converters
