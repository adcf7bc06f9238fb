// Qwen3.5, dense and with experts (qwen3_5_moe), text decoder, of text checkpoints and of
// multimodal ones. The head for multi-token prediction is dropped, and without images the vision
// tower, which qwen3_vl_vision.cc has. Source: transformers, models/qwen3_5/modeling_qwen3_5.py and
// models/qwen3_5_moe/modeling_qwen3_5_moe.py.

#include "converters/blocks/hybrid.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/families/keras_tables.h"

namespace ferry::converters::families::qwen3_5 {
namespace {

using namespace gguf_tables;
using namespace keras_tables;
using enum GgufKey;

constexpr const char* kVision = "vision tower: only the text part is built";
constexpr const char* kMtp = "multi-token prediction: not part of the model's output";

constexpr std::string_view kKerasVision = "layers/qwen3_5_vision_encoder/";

constexpr KerasRow kKerasLayerNorms[] = {
    {"_input_layernorm/vars/0", "input_layernorm.weight", KerasOp::kCopy, "D"},
    {"_post_attention_layernorm/vars/0", "post_attention_layernorm.weight", KerasOp::kCopy, "D"},
};

// A query head is followed by its gate.
constexpr KerasRow kKerasGatedAttention[] = {
    {"_self_attention_layer/_query_dense/vars/0", "self_attn.q_proj.weight",
     KerasOp::kMergeLastTranspose, "DHu"},
    {"_self_attention_layer/_query_norm/vars/0", "self_attn.q_norm.weight", KerasOp::kCopy, "d"},
    {"_self_attention_layer/_key_dense/vars/0", "self_attn.k_proj.weight",
     KerasOp::kMergeLastTranspose, "DKd"},
    {"_self_attention_layer/_key_norm/vars/0", "self_attn.k_norm.weight", KerasOp::kCopy, "d"},
    {"_self_attention_layer/_value_dense/vars/0", "self_attn.v_proj.weight",
     KerasOp::kMergeLastTranspose, "DKd"},
    {"_self_attention_layer/_output_dense/vars/0", "self_attn.o_proj.weight",
     KerasOp::kMergeFirstTranspose, "HdD"},
};

constexpr KerasRow kKerasDeltaNet[] = {
    {"_linear_attn/in_proj_qkv/vars/0", "linear_attn.in_proj_qkv.weight", KerasOp::kTranspose,
     "DC"},
    {"_linear_attn/in_proj_z/vars/0", "linear_attn.in_proj_z.weight", KerasOp::kTranspose, "DW"},
    {"_linear_attn/in_proj_b/vars/0", "linear_attn.in_proj_b.weight", KerasOp::kTranspose, "Dn"},
    {"_linear_attn/in_proj_a/vars/0", "linear_attn.in_proj_a.weight", KerasOp::kTranspose, "Dn"},
    {"_linear_attn/vars/0", "linear_attn.conv1d.weight", KerasOp::kAddMiddle, "Ck"},
    {"_linear_attn/vars/1", "linear_attn.dt_bias", KerasOp::kCopy, "n"},
    {"_linear_attn/vars/2", "linear_attn.A_log", KerasOp::kCopy, "n"},
    {"_linear_attn/norm/vars/0", "linear_attn.norm.weight", KerasOp::kCopy, "w"},
    {"_linear_attn/out_proj/vars/0", "linear_attn.out_proj.weight", KerasOp::kTranspose, "WD"},
};

constexpr KerasRow kKerasMoe[] = {
    {"mlp/_router_gate/vars/0", "mlp.gate.weight", KerasOp::kTranspose, "DE"},
    {"mlp/expert_bank/vars/0", "mlp.experts.gate_up_proj", KerasOp::kTransposeEach, "EDY"},
    {"mlp/expert_bank/vars/1", "mlp.experts.down_proj", KerasOp::kTransposeEach, "EXD"},
    {"mlp/shared_expert/_feedforward_gate_dense/vars/0", "mlp.shared_expert.gate_proj.weight",
     KerasOp::kTranspose, "DS"},
    {"mlp/shared_expert/_feedforward_intermediate_dense/vars/0", "mlp.shared_expert.up_proj.weight",
     KerasOp::kTranspose, "DS"},
    {"mlp/shared_expert/_feedforward_output_dense/vars/0", "mlp.shared_expert.down_proj.weight",
     KerasOp::kTranspose, "SD"},
    {"mlp/_shared_expert_gate/vars/0", "mlp.shared_expert_gate.weight", KerasOp::kTranspose, "D1"},
};

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "qwen3_5_text",
               .wrapper = {.name = "qwen3_5"},
               .defaults = R"({"vocab_size": 248320, "hidden_size": 4096,
                               "intermediate_size": 12288, "num_hidden_layers": 32,
                               "num_attention_heads": 16, "num_key_value_heads": 4,
                               "head_dim": 256, "max_position_embeddings": 32768,
                               "partial_rotary_factor": 0.25, "linear_num_key_heads": 16,
                               "linear_num_value_heads": 32, "linear_key_head_dim": 128,
                               "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4})",
               .partial_rope = true,
               .lists_layers = true,
               .attention_bias = true,
               .hybrid = true},
              {.name = "qwen3_5_moe_text",
               .wrapper = {.name = "qwen3_5_moe"},
               .defaults = R"({"vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40,
                               "num_attention_heads": 16, "num_key_value_heads": 2,
                               "head_dim": 256, "max_position_embeddings": 32768,
                               "partial_rotary_factor": 0.25, "linear_num_key_heads": 16,
                               "linear_num_value_heads": 32, "linear_key_head_dim": 128,
                               "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
                               "num_experts": 256, "num_experts_per_tok": 8,
                               "moe_intermediate_size": 512,
                               "shared_expert_intermediate_size": 512})",
               .partial_rope = true,
               .lists_layers = true,
               .attention_bias = true,
               .hybrid = true,
               .experts = ExpertRule::kAll,
               .shared_expert = true}},
    .components = {{.prefixes = {"model.", "model.language_model.", "language_model.model."},
                    .heads = {"lm_head.weight", "language_model.lm_head.weight"},
                    .rules = separate_hybrid_rules,
                    .build = build_hybrid}},
    .dropped = {{"model.visual.*", kVision},
                {"visual.*", kVision},
                {"mtp.*", kMtp},
                {"model.mtp.*", kMtp}},
    .gguf = {{.name = "qwen35",
              .other_types = {"qwen3_5"},
              .tables = {kFrame, kAttention, kValueAndOutput, kPostAttentionNorm, kMlp,
                         kTiledDeltaNet},
              .shifted_norms = true,
              .linear_attention = true,
              .interleaved_sections = true,
              .keys = standard_keys({kLinearAttention}),
              .unread = {kOutputBias}},
             {.name = "qwen35moe",
              .model_type = "qwen3_5_moe_text",
              .other_types = {"qwen3_5_moe"},
              .tables = {kFrame, kAttention, kValueAndOutput, kPostAttentionNorm, kExperts,
                         kFusedExperts, kTiledDeltaNet, kExpertWeights},
              .shifted_norms = true,
              .linear_attention = true,
              .interleaved_sections = true,
              .normed_experts = true,
              .keys = standard_keys({kExpertSizes, kLinearAttention}),
              .unread = {kOutputBias}}},
    .keras = {{.classes = {"Qwen3_5Backbone"},
               .decoder = "qwen3_5_transformer_decoder",
               .final_norm = "qwen3_5_layer_norm",
               .outside = kKerasEmbeddingAndHead,
               .inside = {{kKerasLayerNorms},
                          {kKerasMlp},
                          {kKerasGatedAttention, KerasLayer::kAttention},
                          {kKerasDeltaNet, KerasLayer::kLinearAttention}},
               .unread = kKerasVision},
              {.model_type = "qwen3_5_moe_text",
               .classes = {"Qwen3_5MoeBackbone"},
               .decoder = "qwen3_5_moe_transformer_decoder",
               .final_norm = "qwen3_5_layer_norm",
               .outside = kKerasEmbeddingAndHead,
               .inside = {{kKerasLayerNorms},
                          {kKerasMoe},
                          {kKerasGatedAttention, KerasLayer::kAttention},
                          {kKerasDeltaNet, KerasLayer::kLinearAttention}},
               .unread = kKerasVision}}};

}  // namespace ferry::converters::families::qwen3_5
