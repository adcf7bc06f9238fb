// Phi-3.5-MoE: Llama with layer norms, and two experts that SparseMixer chooses.
// Source: transformers, models/phimoe/modeling_phimoe.py.

#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::phimoe {
namespace {

constexpr FloatRange kNoiseRange = {0.0, 1e6};

Status read(const JsonFields& fields, ModelConfig& config) {
  config.moe.scores = MoeConfig::Scores::kSparseMixer;
  config.moe.nearness = 2 * FERRY_TRY(fields.number_or("router_jitter_noise", kNoiseRange, 0.0));
  config.numbers[kHeadBias] = FERRY_TRY(fields.flag_or("lm_head_bias", false)) ? 1 : 0;
  return {};
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const bool bias = config.attention_bias;
  std::vector<KeyRule> all = concat(
      {standard_matrix_rules(prefix), standard_layer_norm_rules(prefix),
       bias_rules(prefix, bias, bias, /*mlp=*/false), block_sparse_rules(prefix, config),
       expert_rules(prefix, config),
       rename_rules(prefix,
                    {{"layers.{i}.mlp.router.weight", "layers.{i}.feed_forward.gate.weight"}})});
  if (config.number(kHeadBias) == 0) return all;
  return concat({all, rename_rules("", {{"lm_head.bias", "output.bias"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias;
  return build_styled_decoder(config, options,
                              {.attention = {.qkv_bias = bias, .output_bias = bias},
                               .head_bias = config.number(kHeadBias) != 0});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "phimoe",
               // Two experts are chosen, whatever num_experts_per_tok says.
               .defaults = R"({"vocab_size": 32064, "hidden_size": 4096,
                               "moe_intermediate_size": 6400, "num_hidden_layers": 32,
                               "num_attention_heads": 32, "num_key_value_heads": 8,
                               "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                               "rope_theta": 1000000.0, "num_experts": 16,
                               "num_experts_per_tok": 2, "router_jitter_noise": 0.01})",
               .names = {{"num_experts", {"num_local_experts"}},
                         {"moe_intermediate_size", {"intermediate_size"}}},
               .unread = {"num_experts_per_tok"},
               .rope = RopeRule::kMscale,
               .window = WindowRule::kAll,
               .attention_bias = true,
               .experts = ExpertRule::kAll,
               .read = read}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"Phimoe", score_head, /*texts=*/true, /*tokens=*/false}}};

}  // namespace ferry::converters::families::phimoe
