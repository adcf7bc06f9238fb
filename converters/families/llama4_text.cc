// Llama 4: RoPE and attention to chunks in three of four layers, full attention without positions
// in the others, experts that read their inputs times a score, beside a shared one.
// Source: transformers, models/llama4/modeling_llama4.py.

#include <nlohmann/json.hpp>

#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/undo_keys.h"

namespace ferry::converters::families::llama4_text {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr const char* kVision = "vision: only the text part is built";
constexpr FloatRange kGrowthRange = {-1e3, 1e3};

Status read(const JsonFields& fields, ModelConfig& config) {
  if (fields.find("sliding_window") == nullptr) return fields.bad("sliding_window", "is null");
  if (const nlohmann::json* causal = fields.find("is_causal"); causal != nullptr) {
    // The mask of chunks would stay causal.
    if (*causal != true) return fields.error(ErrorCode::kUnsupported, "is_causal", "is not true");
  }
  if (FERRY_TRY(fields.flag_or("attn_temperature_tuning", false))) {
    config.scalars.query_growth = FERRY_TRY(fields.number_or("attn_scale", kGrowthRange, 0.1));
    config.scalars.query_growth_step = FERRY_TRY(fields.required("floor_scale", kPositionRange));
  }
  if (config.moe.experts == 0) return {};
  config.moe.scores = MoeConfig::Scores::kSigmoid;
  config.moe.norm_top_scores = false;
  config.moe.scores_input = true;
  config.moe.shared_gate = false;
  return {};
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const bool bias = config.attention_bias;
  const std::string layer = prefix + "layers.{i}.", mlp = layer + "feed_forward.";
  std::vector<KeyRule> all = concat(
      {paired_rope_rules(layer + "self_attn", bias),
       rename_rules(layer, {{"self_attn.v_proj.weight", "layers.{i}.attention.wv.weight"},
                            {"self_attn.o_proj.weight", "layers.{i}.attention.wo.weight"},
                            {"input_layernorm.weight", "layers.{i}.attention_norm.weight"},
                            {"post_attention_layernorm.weight", "layers.{i}.ffn_norm.weight"}}),
       rename_rules(mlp, {{"gate_proj.weight", "layers.{i}.feed_forward.w1.weight"},
                          {"up_proj.weight", "layers.{i}.feed_forward.w3.weight"},
                          {"down_proj.weight", "layers.{i}.feed_forward.w2.weight"}}),
       rename_rules(prefix, {{"embed_tokens.weight", "tok_embeddings.weight"},
                             {"norm.weight", "norm.weight"}})});
  if (bias) {
    all = concat(
        {all, rename_rules(layer, {{"self_attn.v_proj.bias", "layers.{i}.attention.wv.bias"},
                                   {"self_attn.o_proj.bias", "layers.{i}.attention.wo.bias"}})});
  }
  if (config.moe.experts == 0) return all;
  return concat(
      {all, transposed_expert_rules(mlp + "experts.gate_up_proj", mlp + "experts.down_proj"),
       dialect_rules(stacked_expert_rules(mlp + "experts.{e}.", "gate_proj.weight",
                                          "up_proj.weight", "down_proj.weight")),
       rename_rules(
           mlp, {{"router.weight", "layers.{i}.feed_forward.gate.weight"},
                 {"shared_expert.gate_proj.weight", "layers.{i}.feed_forward.shared.w1.weight"},
                 {"shared_expert.up_proj.weight", "layers.{i}.feed_forward.shared.w3.weight"},
                 {"shared_expert.down_proj.weight", "layers.{i}.feed_forward.shared.w2.weight"}})});
}

constexpr GgufName kLlama4Gguf[] = {
    {"blk.{i}.ffn_gate.weight", "model.layers.{i}.feed_forward.gate_proj.weight"},
    {"blk.{i}.ffn_up.weight", "model.layers.{i}.feed_forward.up_proj.weight"},
    {"blk.{i}.ffn_down.weight", "model.layers.{i}.feed_forward.down_proj.weight"},
    {"blk.{i}.ffn_gate_inp.weight", "model.layers.{i}.feed_forward.router.weight"},
    {"blk.{i}.ffn_gate_exps.weight", "model.layers.{i}.feed_forward.experts.{e}.gate_proj.weight",
     kStacked},
    {"blk.{i}.ffn_up_exps.weight", "model.layers.{i}.feed_forward.experts.{e}.up_proj.weight",
     kStacked},
    {"blk.{i}.ffn_down_exps.weight", "model.layers.{i}.feed_forward.experts.{e}.down_proj.weight",
     kStacked},
    {"blk.{i}.ffn_gate_shexp.weight",
     "model.layers.{i}.feed_forward.shared_expert.gate_proj.weight"},
    {"blk.{i}.ffn_up_shexp.weight", "model.layers.{i}.feed_forward.shared_expert.up_proj.weight"},
    {"blk.{i}.ffn_down_shexp.weight",
     "model.layers.{i}.feed_forward.shared_expert.down_proj.weight"},
};

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias, normed = config.number(kRopeNorm) != 0;
  return build_decoder(
      config, options,
      [bias, normed](GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
        AttentionStyle style = {.qkv_bias = bias, .output_bias = bias};
        if (normed && c.config.rope_layers[static_cast<size_t>(layer)]) {
          style.qk_norm = AttentionStyle::QkNorm::kAfterBare;
        }
        return attention(b, c, x, layer, style);
      });
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "llama4_text",
               .wrapper = {.name = "llama4", .text_ties = true, .outer_ties = false},
               .defaults = R"({"vocab_size": 202048, "hidden_size": 5120,
                               "intermediate_size": 16384, "moe_intermediate_size": 8192,
                               "shared_expert_intermediate_size": 8192, "num_hidden_layers": 48,
                               "num_attention_heads": 40, "num_key_value_heads": 8,
                               "head_dim": 128, "max_position_embeddings": 131072,
                               "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "num_experts": 16,
                               "num_experts_per_tok": 1, "use_qk_norm": true,
                               "sliding_window": 8192, "attn_temperature_tuning": true,
                               "floor_scale": 8192, "attn_scale": 0.1})",
               .names = {{"intermediate_size", {"intermediate_size_mlp"}},
                         {"moe_intermediate_size", {"intermediate_size"}},
                         {"shared_expert_intermediate_size", {"intermediate_size"}},
                         {"num_experts", {"num_local_experts"}},
                         {"decoder_sparse_step", {"interleave_moe_layer_step"}},
                         {"sliding_window", {"attention_chunk_size"}}},
               .unread = {"norm_topk_prob", "mlp_bias"},
               .flags = {{.key = "use_qk_norm", .number = kRopeNorm, .otherwise = true}},
               .window = WindowRule::kChunks,
               .lists_layers = true,
               .attention_bias = true,
               .rope_layers = RopeLayers::kListedIfAny,
               .experts = ExpertRule::kNamed,
               .shared_expert = true,
               .read = read}},
    .components = {{.prefixes = {"model.", "language_model.model."},
                    .heads = {"lm_head.weight", "language_model.lm_head.weight"},
                    .rules = rules,
                    .build = build}},
    .dropped = {{"vision_model.*", kVision}, {"multi_modal_projector.*", kVision}},
    .gguf = {
        {.name = "llama4",
         .other_types = {"llama4"},
         .tables = {kFrame, kAttention, kValueAndOutput, kPreNorm, kLlama4Gguf, kExpertWeights},
         .no_rope_interval = 4,
         .sigmoid_experts = true,
         .window_every = 4,
         .own_keys = GgufOwnKeys::kLlama4,
         .keys = llama_keys({kExpertStep, kExpertLength}),
         .unread = attention_biases(),
         .rope_factors = true}}};

}  // namespace ferry::converters::families::llama4_text
