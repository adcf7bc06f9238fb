// DeepSeek V3 and R1, Kimi K2, Moonlight: latent attention, experts chosen from groups by sigmoids.
// GLM 4.7 Flash states the layers with experts in another way.
// Source: transformers, models/deepseek_v3/modeling_deepseek_v3.py,
// models/glm4_moe_lite/configuration_glm4_moe_lite.py.

#include "converters/blocks/decoder.h"
#include "converters/blocks/latent_attention.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::deepseek_v3 {
namespace {

using namespace gguf_tables;

Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(read_sigmoid_experts(fields, config));
  const bool paired = FERRY_TRY(fields.flag_or("rope_interleave", false));
  return read_latent_attention(fields, config, paired, FERRY_TRY(latent_score_scale(fields)));
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {latent_attention_rules(prefix, config), standard_norm_rules(prefix),
       rename_rules(prefix,
                    {{"embed_tokens.weight", "tok_embeddings.weight"},
                     {"layers.{i}.mlp.gate_proj.weight", "layers.{i}.feed_forward.w1.weight"},
                     {"layers.{i}.mlp.down_proj.weight", "layers.{i}.feed_forward.w2.weight"},
                     {"layers.{i}.mlp.up_proj.weight", "layers.{i}.feed_forward.w3.weight"}}),
       deepseek_expert_rules(prefix, config)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_decoder(config, options, latent_attention);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "deepseek_v3",
               .defaults = R"({"vocab_size": 129280, "hidden_size": 7168,
                               "intermediate_size": 18432, "moe_intermediate_size": 2048,
                               "num_hidden_layers": 61, "num_attention_heads": 128,
                               "num_key_value_heads": 128, "n_shared_experts": 1,
                               "num_experts": 256, "routed_scaling_factor": 2.5,
                               "kv_lora_rank": 512, "q_lora_rank": 1536, "head_dim": 64,
                               "v_head_dim": 128, "qk_nope_head_dim": 128, "n_group": 8,
                               "topk_group": 4, "num_experts_per_tok": 8,
                               "first_k_dense_replace": 3, "norm_topk_prob": true,
                               "max_position_embeddings": 4096, "rope_interleave": true})",
               .names = {{"num_experts", {"num_local_experts", "n_routed_experts"}},
                         {"head_dim", {"qk_rope_head_dim"}}},
               .attention_bias = true,
               .experts = ExpertRule::kAfterFirst,
               .read = read},
              {.name = "glm4_moe_lite",
               .defaults = R"({"vocab_size": 154880, "hidden_size": 2048,
                               "intermediate_size": 10240, "moe_intermediate_size": 1536,
                               "num_hidden_layers": 47, "num_attention_heads": 20,
                               "num_key_value_heads": 20, "n_shared_experts": 1,
                               "num_experts": 64, "routed_scaling_factor": 1.8,
                               "kv_lora_rank": 512, "q_lora_rank": 768, "head_dim": 64,
                               "v_head_dim": 256, "qk_nope_head_dim": 192, "n_group": 1,
                               "topk_group": 1, "num_experts_per_tok": 4,
                               "first_k_dense_replace": 1, "norm_topk_prob": true,
                               "max_position_embeddings": 202752, "rms_norm_eps": 1e-5,
                               "rope_interleave": true})",
               .names = {{"num_experts", {"num_local_experts", "n_routed_experts"}},
                         {"head_dim", {"head_dim", "qk_rope_head_dim"}}},
               .unread = {"first_k_dense_replace"},
               .attention_bias = true,
               .experts = ExpertRule::kTyped,
               .read = read}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"DeepseekV3", score_head}},
    .gguf = {{.name = "deepseek2",
              .tables = {kFrame, kLatentAttention, kPreNorm, kMlp, kSharedExperts, kExperts,
                         kFusedExperts},
              .latent = true,
              .grouped_experts = true,
              .sigmoid_experts = true,
              .log_multiplier = 0.1,
              .predicting = "model.layers.",
              .sign = GgufSign::kSigmoidExperts,
              .own_keys = GgufOwnKeys::kLatentAttention,
              .keys = deepseek_keys(),
              .unread = latent_biases()}}};

}  // namespace ferry::converters::families::deepseek_v3
