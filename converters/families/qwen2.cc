// Qwen2 and Qwen2.5: q, k and v always have biases, o never. Layers from max_window_layers on have
// a sliding window where use_sliding_window is set. Source: transformers,
// models/qwen2/modeling_qwen2.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::qwen2 {
namespace {

using namespace gguf_tables;

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  return concat({standard_matrix_rules(prefix), standard_norm_rules(prefix),
                 bias_rules(prefix, /*qkv=*/true, /*output=*/false, /*mlp=*/false),
                 packed_export_rules(prefix, /*qkv_bias=*/true, /*mlp_bias=*/false)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options, {.qkv_bias = true});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "qwen2",
               .defaults = R"({"vocab_size": 151936, "hidden_size": 4096,
                               "intermediate_size": 22016, "num_hidden_layers": 32,
                               "num_attention_heads": 32, "num_key_value_heads": 32,
                               "max_position_embeddings": 32768, "sliding_window": 4096,
                               "max_window_layers": 28})",
               .window = WindowRule::kFromLayer,
               .lists_layers = true,
               .qkv_bias = true}},
    .components = {{.rules = rules, .build = build}},
    .gguf = {{.name = "qwen2",
              .tokenizer_keys = {.sentence_piece = true},
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp},
              .keys = standard_keys()}},
    .meta = MetaParams{.qkv_bias = true}};

}  // namespace ferry::converters::families::qwen2
