// OLMoE: routed experts in every layer; q and k are normalised over all heads together.
// Source: transformers, models/olmoe/modeling_olmoe.py.

#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::olmoe {
namespace {

using namespace gguf_tables;

Status read(const JsonFields& fields, ModelConfig& config) {
  config.scalars.qkv_clip = FERRY_TRY(fields.number("clip_qkv", kScaleRange));
  return {};
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {standard_matrix_rules(prefix), standard_norm_rules(prefix),
       rename_rules(prefix,
                    {{"layers.{i}.self_attn.q_norm.weight", "layers.{i}.attention.q_norm.weight"},
                     {"layers.{i}.self_attn.k_norm.weight", "layers.{i}.attention.k_norm.weight"}}),
       bias_rules(prefix, config.attention_bias, config.attention_bias, /*mlp=*/false),
       expert_rules(prefix, config)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options,
                                 {.qkv_bias = config.attention_bias,
                                  .output_bias = config.attention_bias,
                                  .qk_norm = AttentionStyle::QkNorm::kWhole});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "olmoe",
               .defaults = R"({"vocab_size": 50304, "hidden_size": 2048,
                               "intermediate_size": 2048, "num_hidden_layers": 16,
                               "num_attention_heads": 16, "max_position_embeddings": 4096,
                               "rms_norm_eps": 1e-5, "num_experts": 64,
                               "num_experts_per_tok": 8, "moe_intermediate_size": 2048})",
               // Every layer has experts, of the size of an MLP.
               .names = {{"num_experts", {"num_local_experts", "num_experts"}},
                         {"moe_intermediate_size", {"intermediate_size"}},
                         {"decoder_sparse_step", {}},
                         {"mlp_only_layers", {}}},
               .attention_bias = true,
               .experts = ExpertRule::kListed,
               .read = read}},
    .components = {{.rules = rules, .build = build}},
    .gguf = {{.name = "olmoe",
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kExperts,
                         kFusedExperts},
              .keys = standard_keys(),
              .unread = {kOutputBias},
              .own_head = true,
              .no_shared_heads = true}}};

}  // namespace ferry::converters::families::olmoe
