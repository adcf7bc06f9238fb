// Llama 2 and 3, and other models that are stored under the same model_type (SmolLM2, TinyLlama).
// Source: transformers, models/llama/modeling_llama.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/families/keras_tables.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::llama {
namespace {

using namespace gguf_tables;
using namespace keras_tables;

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat({llama_rules(config, prefix),
                 packed_export_rules(prefix, config.attention_bias, config.mlp_bias)});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "llama",
               .defaults = R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
                               "num_hidden_layers": 32, "num_attention_heads": 32,
                               "max_position_embeddings": 2048})",
               .attention_bias = true,
               .mlp_bias = true,
               .ternary = true}},
    .components = {{.rules = rules, .build = build_llama}},
    .classifiers = {{"Llama", score_head}},
    .gguf = {{.name = "llama",
              .tokenizer_keys = {.sentence_piece = true, .llama = true},
              .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kMlp},
              .keys = llama_keys(),
              .rope_factors = true}},
    .keras = {{.classes = {"LlamaBackbone", "Llama3Backbone"},
               .decoder = "llama_transformer_decoder",
               .final_norm = "llama_layer_norm",
               .outside = kKerasEmbeddingAndHead,
               .inside = {{kKerasNorms}, {kKerasAttention}, {kKerasMlp}}}},
    .meta = MetaParams{}};

}  // namespace ferry::converters::families::llama
