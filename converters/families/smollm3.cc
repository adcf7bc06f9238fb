// SmolLM3: Llama whose every fourth layer has no RoPE, as no_rope_layers says.
// Source: transformers, models/smollm3/modeling_smollm3.py.

#include "converters/blocks/llama_like.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families {

const FamilySpec kSmollm3 = {
    .model_types = {"smollm3"}, .rules = llama_rules, .ties = standard_ties, .build = build_llama};

}  // namespace ferry::converters::families
