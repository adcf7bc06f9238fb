// DeepSeek V2 and V2-Lite: latent attention, experts chosen by a softmax, perhaps from groups.
// Source: transformers, models/deepseek_v2/modeling_deepseek_v2.py.

#include "converters/blocks/decoder.h"
#include "converters/blocks/latent_attention.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::deepseek_v2 {
namespace {

using namespace gguf_tables;

Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(read_deepseek_experts(fields, config));
  config.moe.norm_top_scores = config.moe.experts == 0;
  const auto method = FERRY_TRY(fields.text("topk_method"));
  if (method == "group_limited_greedy") {
    FERRY_RETURN_IF_ERROR(read_expert_groups(fields, config, 1));
  } else if (method != "greedy" && config.moe.experts > 0) {
    return fields.error(ErrorCode::kUnsupported, "topk_method",
                        "is neither greedy nor group_limited_greedy");
  }
  return read_latent_attention(fields, config, /*paired=*/true,
                               FERRY_TRY(latent_score_scale(fields)));
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat({deepseek_v3::kFamily.text_decoder().rules(config, prefix),
                 bias_rules(prefix, /*qkv=*/false, /*output=*/false, config.mlp_bias)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_decoder(config, options, latent_attention);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "deepseek_v2",
               .defaults = R"({"vocab_size": 102400, "hidden_size": 4096,
                               "intermediate_size": 11008, "num_hidden_layers": 32,
                               "num_attention_heads": 32, "max_position_embeddings": 2048,
                               "first_k_dense_replace": 0, "kv_lora_rank": 512,
                               "q_lora_rank": 1536, "num_experts": 64, "n_shared_experts": 2,
                               "qk_nope_head_dim": 128, "head_dim": 64, "v_head_dim": 128,
                               "topk_method": "greedy", "moe_intermediate_size": 1407})",
               .names = {{"num_experts", {"num_experts", "n_routed_experts"}},
                         {"head_dim", {"qk_rope_head_dim"}}},
               .attention_bias = true,
               .mlp_bias = true,
               .experts = ExpertRule::kAfterFirst,
               .read = read}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"DeepseekV2", score_head, /*texts=*/true, /*tokens=*/false}},
    .gguf = {{.name = "deepseek2",
              .tables = {kFrame, kLatentAttention, kPreNorm, kMlp, kSharedExperts, kExperts,
                         kFusedExperts},
              .latent = true,
              .grouped_experts = true,
              .log_multiplier = 0.1,
              .predicting = "model.layers.",
              .own_keys = GgufOwnKeys::kLatentAttention,
              .keys = deepseek_keys(),
              .unread = latent_biases()}}};

}  // namespace ferry::converters::families::deepseek_v2
