// OLMo 2: norms stand after the two blocks of a layer instead of before them; q and k are
// normalised over all heads together. Source: transformers, models/olmo2/modeling_olmo2.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::olmo2 {
namespace {

using namespace gguf_tables;

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {standard_matrix_rules(prefix),
       rename_rules(
           prefix,
           {{"layers.{i}.self_attn.q_norm.weight", "layers.{i}.attention.q_norm.weight"},
            {"layers.{i}.self_attn.k_norm.weight", "layers.{i}.attention.k_norm.weight"},
            {"layers.{i}.post_attention_layernorm.weight", "layers.{i}.post_attention_norm.weight"},
            {"layers.{i}.post_feedforward_layernorm.weight", "layers.{i}.post_ffn_norm.weight"},
            {"norm.weight", "norm.weight"}}),
       bias_rules(prefix, config.attention_bias, config.attention_bias, /*mlp=*/false)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options,
                                 {.qkv_bias = config.attention_bias,
                                  .output_bias = config.attention_bias,
                                  .qk_norm = AttentionStyle::QkNorm::kWhole},
                                 {.before = false, .after = true});
}

}  // namespace

const FamilySpec kFamily = {
    .types =
        {{.name = "olmo2",
          .defaults =
              R"({"pad_token_id": 1, "vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008,
                               "num_hidden_layers": 32, "num_attention_heads": 32,
                               "max_position_embeddings": 2048, "rms_norm_eps": 1e-5})",
          .attention_bias = true}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"Olmo2", score_head, /*texts=*/true, /*tokens=*/false}},
    .gguf = {{.name = "olmo2",
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kTwoPostNorms, kMlp},
              .keys = standard_keys(),
              .unread = {kOutputBias},
              .own_head = true}}};

}  // namespace ferry::converters::families::olmo2
