// Mistral: Llama with a sliding window in every layer, where the config states one.
// Source: transformers, models/mistral/modeling_mistral.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/families/keras_tables.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::mistral {
namespace {

using namespace gguf_tables;
using namespace keras_tables;

constexpr const char* kVision = "vision: only the text part is built";

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  return concat({standard_matrix_rules(prefix), standard_norm_rules(prefix),
                 packed_export_rules(prefix, /*qkv_bias=*/false, /*mlp_bias=*/false)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options, {});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "mistral",
               .wrapper = {.name = "mistral3", .tied = true},
               .defaults = R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
                               "num_hidden_layers": 32, "num_attention_heads": 32,
                               "num_key_value_heads": 8, "max_position_embeddings": 131072,
                               "sliding_window": 4096})",
               .window = WindowRule::kAll,
               .lists_layers = true}},
    .components = {{.prefixes = {"model.", "model.language_model.", "language_model.model."},
                    .heads = {"lm_head.weight", "language_model.lm_head.weight"},
                    .rules = rules,
                    .build = build}},
    .dropped = {{"model.vision_tower.*", kVision},
                {"vision_tower.*", kVision},
                {"model.multi_modal_projector.*", kVision},
                {"multi_modal_projector.*", kVision}},
    .classifiers = {{"Mistral", score_head}},
    .gguf = {{.name = "mistral3",
              .tokenizer_keys = {.sentence_piece = true, .llama = true},
              .wrapper = "mistral3",
              .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kMlp},
              .keys = llama_keys(),
              .rope_factors = true}},
    .gguf_shared = "llama",
    .keras = {{.classes = {"MistralBackbone"},
               .decoder = "mistral_transformer_decoder",
               .final_norm = "mistral_layer_normalization",
               .outside = kKerasEmbeddingAndHead,
               .inside = {{kKerasNorms}, {kKerasAttention}, {kKerasMlp}}}},
    .meta = MetaParams{}};

}  // namespace ferry::converters::families::mistral
