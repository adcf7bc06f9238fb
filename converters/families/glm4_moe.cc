// GLM 4.5 and 4.6: Llama with a partial RoPE, and experts as in DeepSeek V3 behind the first
// layers. Source: transformers, models/glm4_moe/modeling_glm4_moe.py.

#include "converters/blocks/decoder.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::glm4_moe {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr const char* kQkNorm = "qk_norm";

Status read(const JsonFields& fields, ModelConfig& config) {
  config.numbers[kQkNorm] = FERRY_TRY(fields.flag_or("use_qk_norm", false)) ? 1 : 0;
  return read_sigmoid_experts(fields, config);
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  std::vector<KeyRule> rules =
      concat({standard_matrix_rules(prefix), standard_norm_rules(prefix),
              bias_rules(prefix, config.attention_bias, /*output=*/false, /*mlp=*/false),
              deepseek_expert_rules(prefix, config)});
  if (config.number(kQkNorm) == 0) return rules;
  return concat(
      {rules, rename_rules(
                  prefix,
                  {{"layers.{i}.self_attn.q_norm.weight", "layers.{i}.attention.q_norm.weight"},
                   {"layers.{i}.self_attn.k_norm.weight", "layers.{i}.attention.k_norm.weight"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  using enum AttentionStyle::QkNorm;
  return build_attention_decoder(
      config, options,
      {.qkv_bias = config.attention_bias, .qk_norm = config.number(kQkNorm) != 0 ? kHead : kNone});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "glm4_moe",
               .defaults = R"({"vocab_size": 151552, "hidden_size": 4096,
                               "intermediate_size": 10944, "num_hidden_layers": 46,
                               "num_attention_heads": 96, "num_key_value_heads": 8,
                               "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                               "partial_rotary_factor": 0.5, "moe_intermediate_size": 1408,
                               "num_experts_per_tok": 8, "n_shared_experts": 1,
                               "num_experts": 128, "n_group": 1, "topk_group": 1,
                               "first_k_dense_replace": 1, "norm_topk_prob": true})",
               .names = {{"num_experts", {"num_local_experts", "n_routed_experts"}}},
               .partial_rope = true,
               .attention_bias = true,
               .experts = ExpertRule::kAfterFirst,
               .read = read}},
    .components = {{.rules = rules, .build = build}},
    .gguf = {{.name = "glm4moe",
              .tokenizer_keys = {.glm = GgufTokenizerRules::Glm::kMasked},
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPostAttentionNorm,
                         kMlp, kSharedExperts, kExperts, kFusedExperts},
              .partial_rotary = true,
              .grouped_experts = true,
              .sigmoid_experts = true,
              .flags = {{"blk.{i}.attn_q_norm.weight", "use_qk_norm"}},
              .predicting = "model.layers.",
              .keys = standard_keys({kRopeDimension, kExpertLength, kSharedCount, kDenseBlocks,
                                     kExpertGating, kExpertScale, kExpertNorm})}}};

}  // namespace ferry::converters::families::glm4_moe
