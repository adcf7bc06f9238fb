// OLMo: Llama with layer norms that have neither weight nor bias, and limits of queries, keys and
// values. Source: transformers, models/olmo/modeling_olmo.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::olmo {
namespace {

using namespace gguf_tables;
using enum GgufKey;

Status read(const JsonFields& fields, ModelConfig& config) {
  return olmoe::kFamily.types.front().read(fields, config);
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const bool bias = config.attention_bias;
  return concat({standard_matrix_rules(prefix), bias_rules(prefix, bias, bias, /*mlp=*/false)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias;
  return build_styled_decoder(config, options,
                              {.attention = {.qkv_bias = bias, .output_bias = bias},
                               .norm = NormKind::kLayerBare,
                               .gated = true});
}

}  // namespace

const FamilySpec kFamily = {
    .types =
        {{.name = "olmo",
          .defaults =
              R"({"pad_token_id": 1, "vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008,
                               "num_hidden_layers": 32, "num_attention_heads": 32,
                               "max_position_embeddings": 2048, "rms_norm_eps": 1e-5})",
          .unread = {"rms_norm_eps"},
          .attention_bias = true,
          .read = read}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"Olmo", score_head, /*texts=*/true, /*tokens=*/false}},
    .gguf = {{.name = "olmo",
              .tables = {kFrame, kPairedAttention, kValueAndOutput, kMlp},
              .layer_norm = true,
              .keys = {kBlocks, kContext, kEmbedding, kFeedForward, kHeads, kKvHeads, kRopeBase,
                       kFileType, kLayerNormEpsilon, kClamp},
              .unread = attention_biases(),
              .equal_heads = true}}};

}  // namespace ferry::converters::families::olmo
