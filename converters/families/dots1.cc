// dots.llm1: attention of Qwen3 with windows from a layer on, experts of DeepSeek V3.
// Source: transformers, models/dots1/modeling_dots1.py.

#include "converters/blocks/decoder.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::dots1 {
namespace {

using namespace gguf_tables;
using enum GgufKey;

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const bool bias = config.attention_bias;
  return concat(
      {standard_matrix_rules(prefix), standard_norm_rules(prefix),
       bias_rules(prefix, bias, bias, /*mlp=*/false),
       rename_rules(prefix,
                    {{"layers.{i}.self_attn.q_norm.weight", "layers.{i}.attention.q_norm.weight"},
                     {"layers.{i}.self_attn.k_norm.weight", "layers.{i}.attention.k_norm.weight"}}),
       deepseek_expert_rules(prefix, config)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias;
  return build_attention_decoder(
      config, options,
      {.qkv_bias = bias, .output_bias = bias, .qk_norm = AttentionStyle::QkNorm::kHead});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "dots1",
               // The window needs no flag.
               .defaults = R"({"vocab_size": 152064, "hidden_size": 4608,
                               "intermediate_size": 10944, "moe_intermediate_size": 1408,
                               "num_hidden_layers": 62, "num_attention_heads": 32,
                               "num_key_value_heads": 32, "max_position_embeddings": 2048,
                               "n_group": 1, "topk_group": 1, "first_k_dense_replace": 0,
                               "sliding_window": 4096, "max_window_layers": 62,
                               "use_sliding_window": true})",
               .names = {{"num_experts", {"num_local_experts", "n_routed_experts"}}},
               .unread = {"use_sliding_window", "num_nextn_predict_layers"},
               .window = WindowRule::kFromLayer,
               .lists_layers = true,
               .attention_bias = true,
               .experts = ExpertRule::kAfterFirst,
               .read = read_sigmoid_experts}},
    .components = {{.rules = rules, .build = build}},
    .gguf = {{.name = "dots1",
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp,
                         kSharedExperts, kExperts, kFusedExperts},
              .grouped_experts = true,
              .sigmoid_experts = true,
              .keys = standard_keys({kExpertLength, kDenseBlocks, kSharedCount, kExpertGating,
                                     kExpertScale, kExpertNorm}),
              .unread = attention_biases(),
              .own_head = true,
              .no_shared_heads = true}}};

}  // namespace ferry::converters::families::dots1
