// Granite 3 (dense): Llama with multipliers of embeddings, attention scores, residuals and logits.
// Source: transformers, models/granite/modeling_granite.py.

#include "converters/blocks/llama_like.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families {

const FamilySpec kGranite = {
    .model_types = {"granite"}, .rules = llama_rules, .ties = standard_ties, .build = build_llama};

}  // namespace ferry::converters::families
