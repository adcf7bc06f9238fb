// Qwen3.5, dense and with experts (qwen3_5_moe), text decoder, of text checkpoints and of
// multimodal ones. The vision tower and the head for multi-token prediction are dropped. Source:
// transformers, models/qwen3_5/modeling_qwen3_5.py and models/qwen3_5_moe/modeling_qwen3_5_moe.py.

#include "converters/blocks/hybrid.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"

namespace ferry::converters::families::qwen3_5 {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr const char* kVision = "vision tower: only the text part is built";
constexpr const char* kMtp = "multi-token prediction: not part of the model's output";

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
    .gguf = {
        {.name = "qwen35",
         .other_types = {"qwen3_5"},
         .tables = {kFrame, kAttention, kValueAndOutput, kPostAttentionNorm, kMlp, kTiledDeltaNet},
         .shifted_norms = true,
         .linear_attention = true,
         .keys = standard_keys({kLinearAttention})},
        {.name = "qwen35moe",
         .model_type = "qwen3_5_moe_text",
         .other_types = {"qwen3_5_moe"},
         .tables = {kFrame, kAttention, kValueAndOutput, kPostAttentionNorm, kExperts,
                    kFusedExperts, kTiledDeltaNet, kExpertWeights},
         .shifted_norms = true,
         .linear_attention = true,
         .normed_experts = true,
         .keys = standard_keys({kExpertSizes, kLinearAttention})}}};

}  // namespace ferry::converters::families::qwen3_5
