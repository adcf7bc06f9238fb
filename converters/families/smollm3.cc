// SmolLM3: Llama, where layers that no_rope_layers lists have no RoPE; every fourth one by default.
// Source: transformers, models/smollm3/modeling_smollm3.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"

namespace ferry::converters::families::smollm3 {
namespace {

using namespace gguf_tables;

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "smollm3",
               .defaults = R"({"vocab_size": 128256, "hidden_size": 2048,
                               "intermediate_size": 11008, "num_hidden_layers": 36,
                               "num_attention_heads": 16, "num_key_value_heads": 4,
                               "max_position_embeddings": 32768, "rope_theta": 2000000.0,
                               "no_rope_layer_interval": 4, "tie_word_embeddings": true})",
               .window = WindowRule::kWhereNoRope,
               .lists_layers = true,
               .attention_bias = true,
               .mlp_bias = true,
               .rope_layers = RopeLayers::kListed}},
    .components = {{.rules = llama_rules, .build = build_llama}},
    .gguf = {{.name = "smollm3",
              .tokenizer_keys = {.sentence_piece = true, .llama = true},
              .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kMlp},
              .no_rope_interval = 4,
              .keys = llama_keys(),
              .unread = block_biases(),
              .rope_factors = true}},
    .meta = MetaParams{}};

}  // namespace ferry::converters::families::smollm3
