// MiniCPM3: latent attention of DeepSeek V2 with RoPE of halves, and multipliers of embeddings,
// residuals and logits. Source: transformers, models/minicpm3/modeling_minicpm3.py.

#include <cmath>

#include "converters/blocks/latent_attention.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"

namespace ferry::converters::families::minicpm3 {
namespace {

using namespace gguf_tables;
using enum GgufKey;

Status read(const JsonFields& fields, ModelConfig& config) {
  const auto layers = static_cast<double>(config.num_layers);
  const auto hidden = static_cast<double>(config.hidden_size);
  ScalarConfig& out = config.scalars;
  out.embedding = FERRY_TRY(fields.number_or("scale_emb", kScaleRange, 1.0));
  out.residual = FERRY_TRY(fields.number_or("scale_depth", kScaleRange, std::sqrt(layers))) /
                 std::sqrt(layers);
  out.logits = FERRY_TRY(fields.number_or("dim_model_base", kScaleRange, hidden)) / hidden;
  return read_latent_attention(fields, config, /*paired=*/false,
                               FERRY_TRY(latent_score_scale(fields)));
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return deepseek_v2::kFamily.text_decoder().rules(config, prefix);
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return deepseek_v2::kFamily.text_decoder().build(config, options);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "minicpm3",
               .defaults = R"({"vocab_size": 73448, "hidden_size": 2560,
                               "intermediate_size": 6400, "num_hidden_layers": 62,
                               "num_attention_heads": 40, "num_key_value_heads": 40,
                               "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
                               "tie_word_embeddings": true, "kv_lora_rank": 256,
                               "q_lora_rank": 768, "qk_nope_head_dim": 64, "head_dim": 32,
                               "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256})",
               .names = {{"head_dim", {"qk_rope_head_dim"}}},
               .attention_bias = true,
               .mlp_bias = true,
               .read = read}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"MiniCPM3", score_head, /*texts=*/true, /*tokens=*/false}},
    .gguf = {{.name = "minicpm3",
              .tokenizer_keys = {.sentence_piece = true},
              .tables = {kFrame, kWholeLatentAttention, kPreNorm, kMlp},
              .latent = true,
              .own_keys = GgufOwnKeys::kMinicpm3,
              .keys = {kFileType, kContext, kEmbedding, kBlocks, kFeedForward, kHeads, kKvHeads,
                       kRmsEpsilon, kVocabulary, kLatentHeads, kOtherRopeBase},
              .unread = latent_biases()}}};

}  // namespace ferry::converters::families::minicpm3
