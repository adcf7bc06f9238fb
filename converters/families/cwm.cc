// CWM (Code World Model): Llama where all but the first of every four layers have a sliding window.
// Source: transformers, models/cwm/modeling_cwm.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"

namespace ferry::converters::families::cwm {

const FamilySpec kFamily = {
    .types = {{.name = "cwm",
               .defaults = R"({"vocab_size": 128256, "hidden_size": 6144,
                               "intermediate_size": 21504, "num_hidden_layers": 64,
                               "num_attention_heads": 48, "num_key_value_heads": 8,
                               "head_dim": 128, "max_position_embeddings": 131072,
                               "rms_norm_eps": 1e-5, "sliding_window": 8192,
                               "sliding_window_pattern": 4,
                               "rope_parameters": {"rope_type": "llama3", "rope_theta": 1000000.0,
                                 "factor": 16.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                                 "original_max_position_embeddings": 8192}})",
               .names = {{"sliding_window_pattern", {}}},  // the pattern is fixed
               .window = WindowRule::kFirstFull,
               .lists_layers = true,
               .mlp_bias = true}},
    .components = {{.rules = llama_rules, .build = build_llama}}};

}  // namespace ferry::converters::families::cwm
