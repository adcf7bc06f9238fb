// GPT-OSS: attention sinks, windows in every second layer, and in every layer clamped experts with
// biases. Source: transformers, models/gpt_oss/modeling_gpt_oss.py.

#include "converters/blocks/decoder.h"
#include "converters/blocks/decoder_context.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/families/keras_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::gpt_oss {
namespace {

using namespace gguf_tables;
using namespace keras_tables;
using enum GgufKey;

constexpr GgufName kGptOssGguf[] = {
    {"blk.{i}.attn_sinks.weight", "model.layers.{i}.self_attn.sinks"},
    {"blk.{i}.ffn_gate_inp.weight", "model.layers.{i}.mlp.router.weight"},
    {"blk.{i}.ffn_gate_inp.bias", "model.layers.{i}.mlp.router.bias"},
    {"blk.{i}.ffn_gate_exps.bias", "model.layers.{i}.mlp.experts.gate_proj_bias"},
    {"blk.{i}.ffn_up_exps.bias", "model.layers.{i}.mlp.experts.up_proj_bias"},
    {"blk.{i}.ffn_down_exps.bias", "model.layers.{i}.mlp.experts.down_proj_bias"},
};

Status read(const JsonFields& fields, ModelConfig& config) {
  const bool is_null = fields.find("rope_parameters") == nullptr;
  if (is_null) return fields.error(ErrorCode::kUnsupported, "rope_parameters", "is null");
  config.numbers[kAttentionSinks] = 1;
  config.moe.scores = MoeConfig::Scores::kTopSoftmax;
  config.moe.router_bias = true;
  config.moe.clamp = {.steepness = FERRY_TRY(fields.number_or("swiglu_alpha", kScaleRange, 1.702)),
                      .limit = FERRY_TRY(fields.number_or("swiglu_limit", kScaleRange, 7.0))};
  return {};
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string layer = prefix + "layers.{i}.";
  return concat({llama_rules(config, prefix), clamped_expert_rules(layer + "mlp.experts."),
                 rename_rules(layer, {{"self_attn.sinks", "layers.{i}.attention.sinks"},
                                      {"mlp.router.weight", "layers.{i}.feed_forward.gate.weight"},
                                      {"mlp.router.bias", "layers.{i}.feed_forward.gate.bias"}})});
}

// The experts are stored as Hugging Face stores them.
constexpr KerasRow kKerasInside[] = {
    {"input_layernorm/vars/0", "input_layernorm.weight", KerasOp::kCopy, "D"},
    {"post_attention_layernorm/vars/0", "post_attention_layernorm.weight", KerasOp::kCopy, "D"},
    {"self_attention_layer/query_dense/vars/0", "self_attn.q_proj.weight",
     KerasOp::kMergeLastTranspose, "DHd"},
    {"self_attention_layer/query_dense/vars/1", "self_attn.q_proj.bias", KerasOp::kFlatten, "Hd"},
    {"self_attention_layer/key_dense/vars/0", "self_attn.k_proj.weight",
     KerasOp::kMergeLastTranspose, "DKd"},
    {"self_attention_layer/key_dense/vars/1", "self_attn.k_proj.bias", KerasOp::kFlatten, "Kd"},
    {"self_attention_layer/value_dense/vars/0", "self_attn.v_proj.weight",
     KerasOp::kMergeLastTranspose, "DKd"},
    {"self_attention_layer/value_dense/vars/1", "self_attn.v_proj.bias", KerasOp::kFlatten, "Kd"},
    {"self_attention_layer/output_dense/vars/0", "self_attn.o_proj.weight",
     KerasOp::kMergeFirstTranspose, "HdD"},
    {"self_attention_layer/output_dense/vars/1", "self_attn.o_proj.bias", KerasOp::kCopy, "D"},
    {"self_attention_layer/vars/0", "self_attn.sinks", KerasOp::kCopy, "H"},
    {"sparse_moe_block/router/router_dense/vars/0", "mlp.router.weight", KerasOp::kTranspose, "DE"},
    {"sparse_moe_block/router/router_dense/vars/1", "mlp.router.bias", KerasOp::kCopy, "E"},
    {"sparse_moe_block/experts/vars/0", "mlp.experts.gate_up_proj", KerasOp::kCopy, "EDY"},
    {"sparse_moe_block/experts/vars/1", "mlp.experts.gate_up_proj_bias", KerasOp::kCopy, "EY"},
    {"sparse_moe_block/experts/vars/2", "mlp.experts.down_proj", KerasOp::kCopy, "EXD"},
    {"sparse_moe_block/experts/vars/3", "mlp.experts.down_proj_bias", KerasOp::kCopy, "ED"},
};

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "gpt_oss",
               .defaults = R"({"vocab_size": 201088, "hidden_size": 2880, "head_dim": 64,
                               "moe_intermediate_size": 2880, "num_hidden_layers": 36,
                               "num_attention_heads": 64, "num_key_value_heads": 8,
                               "num_experts": 128, "num_experts_per_tok": 4,
                               "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
                               "rope_theta": 150000.0, "sliding_window": 128,
                               "sliding_window_pattern": 2, "attention_bias": true,
                               "rope_parameters": {"rope_type": "yarn", "factor": 32.0,
                                   "beta_fast": 32.0, "beta_slow": 1.0, "truncate": false,
                                   "original_max_position_embeddings": 4096}})",
               .names = {{"num_experts", {"num_experts", "num_local_experts"}},
                         {"moe_intermediate_size", {"intermediate_size"}},
                         {"sliding_window_pattern", {}}},
               .activation_key = "",
               .window = WindowRule::kPattern,
               .lists_layers = true,
               .attention_bias = true,
               .experts = ExpertRule::kAll,
               .read = read}},
    .components = {{.rules = rules, .build = build_llama}},
    .classifiers = {{"GptOss", score_head}},
    .gguf = {{.name = "gpt-oss",
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPostAttentionNorm,
                         kGptOssGguf, kExperts, kExpertWeights},
              .normed_experts = true,
              .window_every = 2,
              .keys = standard_keys({kWindow, kOtherWindows, kExpertSizes}),
              .own_head = true,
              .needed = {"blk.{i}.attn_q.bias", "blk.{i}.attn_k.bias", "blk.{i}.attn_v.bias",
                         "blk.{i}.attn_output.bias"}}},
    .keras = {{.classes = {"GptOssBackbone"},
               .decoder = "gpt_oss_transformer_decoder",
               .final_norm = "gpt_oss_layer_normalization",
               .outside = kKerasEmbeddingAndHead,
               .inside = {{kKerasInside}}}}};

}  // namespace ferry::converters::families::gpt_oss
