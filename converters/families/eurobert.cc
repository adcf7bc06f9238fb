// EuroBERT: Llama with attention in both directions. Source: transformers, models/eurobert.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"

namespace ferry::converters::families::eurobert {

const FamilySpec kFamily = {
    .types = {{.name = "eurobert",
               .defaults = R"({"vocab_size": 128256, "hidden_size": 768, "intermediate_size": 3072,
                               "num_hidden_layers": 12, "num_attention_heads": 12,
                               "hidden_act": "silu", "max_position_embeddings": 8192,
                               "rms_norm_eps": 1e-5})",
               .attention_bias = true,
               .mlp_bias = true,
               .two_way = TwoWayRule::kAlways}},
    .components = {{.rules = llama_rules, .build = build_llama}},
    .dropped = {{"lm_head.bias", kEncoderHead}}};

}  // namespace ferry::converters::families::eurobert
