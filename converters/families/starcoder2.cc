// StarCoder2: Llama with layer norms, an MLP without a gate, biases everywhere, and a sliding
// window in every layer where the config states one. Source: transformers,
// models/starcoder2/modeling_starcoder2.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::starcoder2 {
namespace {

using namespace gguf_tables;

constexpr GgufName kStarcoder2Gguf[] = {
    {"blk.{i}.ffn_up.weight", "model.layers.{i}.mlp.c_fc.weight"},
    {"blk.{i}.ffn_up.bias", "model.layers.{i}.mlp.c_fc.bias"},
    {"blk.{i}.ffn_down.weight", "model.layers.{i}.mlp.c_proj.weight"},
    {"blk.{i}.ffn_down.bias", "model.layers.{i}.mlp.c_proj.bias"},
};

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat({attention_rules(prefix, config.attention_bias),
                 plain_mlp_rules(prefix, config.attention_bias, "mlp.c_fc", "mlp.c_proj"),
                 standard_layer_norm_rules(prefix),
                 rename_rules(prefix, {{"embed_tokens.weight", "tok_embeddings.weight"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias;
  return build_styled_decoder(
      config, options, {.attention = {.qkv_bias = bias, .output_bias = bias}, .mlp_bias = bias});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "starcoder2",
               .defaults = R"({"vocab_size": 49152, "hidden_size": 3072, "intermediate_size": 12288,
                               "num_hidden_layers": 30, "num_attention_heads": 24,
                               "num_key_value_heads": 2, "hidden_act": "gelu_pytorch_tanh",
                               "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
                               "attention_bias": true, "tie_word_embeddings": true})",
               .names = {{"rms_norm_eps", {"norm_epsilon"}}, {"attention_bias", {"use_bias"}}},
               .window = WindowRule::kAll,
               .attention_bias = true}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"Starcoder2", score_head}},
    .gguf = {{.name = "starcoder2",
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm,
                         kNormBiases, kStarcoder2Gguf},
              .layer_norm = true,
              .keys = standard_keys(),
              .activation = Activation::kGeluTanh,
              .needed = {"blk.{i}.attn_output.bias"}}}};

}  // namespace ferry::converters::families::starcoder2
