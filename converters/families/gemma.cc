// Gemma (1): Llama with tanh-GELU, which released configs call gelu, norms that multiply by (1 +
// w), embeddings multiplied by sqrt(hidden_size), a head_dim of its own and a tied head. Source:
// transformers, models/gemma/modeling_gemma.py.

#include "converters/blocks/gemma.h"
#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/families/keras_tables.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::gemma {
namespace {

using namespace gguf_tables;
using namespace keras_tables;
using enum GgufKey;

Status read(const JsonFields& fields, ModelConfig& config) {
  if (FERRY_TRY(fields.text("hidden_act")) == "gelu") config.activation = Activation::kGeluTanh;
  return read_gemma_scalars(fields, config);
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {standard_matrix_rules(prefix),
       bias_rules(prefix, config.attention_bias, config.attention_bias, /*mlp=*/false),
       shifted_norm_rules(
           prefix, {{"layers.{i}.input_layernorm.weight", "layers.{i}.attention_norm.weight"},
                    {"layers.{i}.post_attention_layernorm.weight", "layers.{i}.ffn_norm.weight"},
                    {"norm.weight", "norm.weight"}})});
}

// One path names different norms of Hugging Face in Gemma 1 and in Gemma 2 and 3.
constexpr KerasRow kKerasMlpNorm[] = {
    {"pre_ffw_norm/vars/0", "post_attention_layernorm.weight", KerasOp::kCopy, "D"},
};

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "gemma",
               .defaults = R"({"pad_token_id": 0, "vocab_size": 256000, "hidden_size": 3072,
                               "intermediate_size": 24576, "num_hidden_layers": 28,
                               "num_attention_heads": 16, "num_key_value_heads": 16,
                               "head_dim": 256, "max_position_embeddings": 8192,
                               "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": true})",
               .attention_bias = true,
               .two_way = TwoWayRule::kRefused,
               .read = read}},
    .components = {{.rules = rules, .build = build_llama}},
    .classifiers = {{"Gemma", score_head}},
    .gguf = {{.name = "gemma",
              .tokenizer_keys = {.sentence_piece = true,
                                 .no_prefix = true,
                                 .ids = {{{"tokenizer.ggml.eot_token_id", 107}}}},
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp},
              .shifted_norms = true,
              .keys = gemma_keys({kOtherRopeBase}),
              .unread = {kOutputBias, "output.weight"},
              .activation = Activation::kGeluTanh}},
    .keras = {{.classes = {"GemmaBackbone"},
               .decoder = "gemma_decoder_block",
               .final_norm = "rms_normalization",
               .outside = kKerasEmbeddingAndHead,
               .inside = {{kKerasGemma}, {kKerasMlpNorm}}}}};

}  // namespace ferry::converters::families::gemma
