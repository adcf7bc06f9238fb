// Granite 3 (dense): Llama with multipliers of embeddings, attention scores, residuals and logits.
// Source: transformers, models/granite/modeling_granite.py.

#include "converters/families/families.h"
#include "converters/llama_like.h"
#include "converters/standard_keys.h"

namespace ferry::families {

const FamilySpec kGranite = {.model_types = {"granite"},
                             .rules = llama_rules,
                             .ties = standard_ties,
                             .build = build_llama};

}  // namespace ferry::families
