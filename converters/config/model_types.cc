// The table of model types. Defaults and names are those of transformers 5.12.1,
// models/TYPE/configuration_TYPE.py.
#include "converters/config/model_types.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace ferry::converters {
namespace {

constexpr std::string_view kQwen35Defaults =
    R"({"vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288,
        "num_hidden_layers": 32, "num_attention_heads": 16, "num_key_value_heads": 4,
        "head_dim": 256, "max_position_embeddings": 32768, "partial_rotary_factor": 0.25,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4})";
constexpr std::string_view kQwen35MoeDefaults =
    R"({"vocab_size": 248320, "hidden_size": 2048, "num_hidden_layers": 40,
        "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
        "max_position_embeddings": 32768, "partial_rotary_factor": 0.25,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
        "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512})";
constexpr KeyNames kLfm2Keys[] = {
    {"rms_norm_eps", {"norm_eps"}},
    {"intermediate_size", {"block_ff_dim", "intermediate_size"}},
    {"tie_word_embeddings", {"tie_embedding", "tie_word_embeddings"}}};
// The attributes that the class maps to n_ names win over these where a config has both.
constexpr KeyNames kCodegenKeys[] = {
    {"hidden_size", {"hidden_size", "n_embd"}},
    {"num_hidden_layers", {"num_hidden_layers", "n_layer"}},
    {"num_attention_heads", {"num_attention_heads", "n_head"}},
    {"max_position_embeddings", {"max_position_embeddings", "n_positions"}},
    {"intermediate_size", {"n_inner"}},
    {"rms_norm_eps", {"layer_norm_epsilon"}},
    {"num_key_value_heads", {}}};
constexpr KeyNames kQwen3MoeKeys[] = {{"num_experts", {"num_local_experts", "num_experts"}}};
// Its layers always alternate.
constexpr KeyNames kGemma2Keys[] = {{"sliding_window_pattern", {}}};

constexpr TypeTraits kTypes[] = {
    {.type = "llama",
     .defaults = R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
                     "num_hidden_layers": 32, "num_attention_heads": 32,
                     "max_position_embeddings": 2048})",
     .attention_bias = true,
     .mlp_bias = true},
    {.type = "mistral",
     .defaults = R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
                     "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
                     "max_position_embeddings": 131072, "sliding_window": 4096})",
     .window = WindowRule::kAll},
    {.type = "phi3",
     .defaults = R"({"vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192,
                     "num_hidden_layers": 32, "num_attention_heads": 32,
                     "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
                     "original_max_position_embeddings": 4096})",
     .rope = RopeRule::kPhi3,
     .partial_rope = true,
     .window = WindowRule::kAll},
    {.type = "glm",
     .defaults = R"({"vocab_size": 151552, "hidden_size": 4096, "intermediate_size": 13696,
                     "num_hidden_layers": 40, "num_attention_heads": 32, "num_key_value_heads": 2,
                     "head_dim": 128, "max_position_embeddings": 131072,
                     "rms_norm_eps": 1.5625e-7, "attention_bias": true,
                     "partial_rotary_factor": 0.5})",
     .partial_rope = true,
     .attention_bias = true},
    {.type = "lfm2",
     .defaults = R"({"vocab_size": 65536, "hidden_size": 2560, "intermediate_size": 12288,
                     "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
                     "max_position_embeddings": 128000, "rms_norm_eps": 1e-5,
                     "rope_theta": 1000000.0, "tie_word_embeddings": true,
                     "block_auto_adjust_ff_dim": true, "block_multiple_of": 256,
                     "block_ffn_dim_multiplier": 1.0, "conv_L_cache": 3})",
     .names = kLfm2Keys,
     .activation_key = "",
     .lists_layers = true,
     .convs = true},
    {.type = "codegen",
     .defaults = R"({"vocab_size": 50400, "hidden_size": 4096, "num_hidden_layers": 28,
                     "num_attention_heads": 16, "max_position_embeddings": 2048, "rotary_dim": 64,
                     "rms_norm_eps": 1e-5, "activation_function": "gelu_new"})",
     .names = kCodegenKeys,
     .activation_key = "activation_function",
     .mlp_ratio = 4,
     .rope = RopeRule::kNone},
    {.type = "qwen2",
     .defaults = R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
                     "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
                     "max_position_embeddings": 32768, "sliding_window": 4096,
                     "max_window_layers": 28})",
     .window = WindowRule::kFromLayer,
     .lists_layers = true,
     .qkv_bias = true},
    {.type = "qwen3",
     .defaults = R"({"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
                     "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32,
                     "head_dim": 128, "max_position_embeddings": 32768, "sliding_window": 4096,
                     "max_window_layers": 28})",
     .window = WindowRule::kFromLayer,
     .lists_layers = true,
     .attention_bias = true},
    {.type = "gemma",
     .defaults = R"({"vocab_size": 256000, "hidden_size": 3072, "intermediate_size": 24576,
                     "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 16,
                     "head_dim": 256, "max_position_embeddings": 8192,
                     "hidden_act": "gelu_pytorch_tanh", "tie_word_embeddings": true})",
     .attention_bias = true,
     .bidirectional = true,
     .scalars = ScalarRule::kGemma},
    {.type = "gemma2",
     .defaults = R"({"vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
                     "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
                     "head_dim": 256, "max_position_embeddings": 8192,
                     "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true,
                     "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0,
                     "final_logit_softcapping": 30.0, "sliding_window": 4096,
                     "sliding_window_pattern": 2})",
     .names = kGemma2Keys,
     .activation_key = "hidden_activation",
     .window = WindowRule::kPattern,
     .lists_layers = true,
     .attention_bias = true,
     .bidirectional = true,
     .scalars = ScalarRule::kGemma2},
    {.type = "gemma3_text",
     .defaults = R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
                     "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
                     "head_dim": 256, "max_position_embeddings": 131072,
                     "hidden_activation": "gelu_pytorch_tanh", "tie_word_embeddings": true,
                     "query_pre_attn_scalar": 256, "rope_theta": 1000000.0,
                     "rope_local_base_freq": 10000.0, "sliding_window": 4096,
                     "sliding_window_pattern": 6})",
     .activation_key = "hidden_activation",
     .rope = RopeRule::kByLayer,
     .window = WindowRule::kPattern,
     .lists_layers = true,
     .attention_bias = true,
     .bidirectional = true,
     .scalars = ScalarRule::kGemma3},
    {.type = "granite",
     .defaults = R"({"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
                     "num_hidden_layers": 32, "num_attention_heads": 32,
                     "max_position_embeddings": 2048})",
     .attention_bias = true,
     .mlp_bias = true,
     .scalars = ScalarRule::kGranite},
    {.type = "olmo2",
     .defaults = R"({"vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008,
                     "num_hidden_layers": 32, "num_attention_heads": 32,
                     "max_position_embeddings": 2048, "rms_norm_eps": 1e-5})",
     .attention_bias = true},
    {.type = "smollm3",
     .defaults = R"({"vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 11008,
                     "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4,
                     "max_position_embeddings": 32768, "rope_theta": 2000000.0,
                     "no_rope_layer_interval": 4, "tie_word_embeddings": true})",
     .window = WindowRule::kWhereNoRope,
     .lists_layers = true,
     .attention_bias = true,
     .mlp_bias = true,
     .nope = true},
    {.type = "qwen3_5_text",
     .defaults = kQwen35Defaults,
     .partial_rope = true,
     .lists_layers = true,
     .attention_bias = true,
     .hybrid = true},
    {.type = "qwen3_5_moe_text",
     .defaults = kQwen35MoeDefaults,
     .partial_rope = true,
     .lists_layers = true,
     .attention_bias = true,
     .hybrid = true,
     .experts = ExpertRule::kAll,
     .shared_expert = true},
    {.type = "qwen3_moe",
     .defaults = R"({"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144,
                     "num_hidden_layers": 24, "num_attention_heads": 32, "num_key_value_heads": 4,
                     "max_position_embeddings": 32768, "sliding_window": 4096, "num_experts": 128,
                     "num_experts_per_tok": 8, "moe_intermediate_size": 768,
                     "norm_topk_prob": false})",
     .names = kQwen3MoeKeys,
     .window = WindowRule::kAllIfUsed,
     .attention_bias = true,
     .experts = ExpertRule::kListed},
    {.type = "qwen3_next",
     .defaults = R"({"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632,
                     "num_hidden_layers": 48, "num_attention_heads": 16, "num_key_value_heads": 2,
                     "head_dim": 256, "max_position_embeddings": 32768,
                     "partial_rotary_factor": 0.25, "linear_num_key_heads": 16,
                     "linear_num_value_heads": 32, "linear_key_head_dim": 128,
                     "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
                     "num_experts": 512, "num_experts_per_tok": 10,
                     "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
                     "norm_topk_prob": true})",
     .partial_rope = true,
     .lists_layers = true,
     .attention_bias = true,
     .hybrid = true,
     .experts = ExpertRule::kListed,
     .shared_expert = true},
};

constexpr WrapperTraits kWrappers[] = {
    {.type = "gemma3", .text_type = "gemma3_text", .tied = true},
    {.type = "qwen3_5", .text_type = "qwen3_5_text"},
    {.type = "qwen3_5_moe", .text_type = "qwen3_5_moe_text"},
};

constexpr std::string_view kInertKeys[] = {
    // notes
    "_commit_hash",
    "_name_or_path",
    "architectures",
    "auto_map",
    "dtype",
    "model_type",
    "torch_dtype",
    "transformers_version",
    "unsloth_fixed",
    "unsloth_version",
    // training
    "attention_dropout",
    "attn_pdrop",
    "embd_pdrop",
    "embedding_dropout",
    "initializer_range",
    "output_router_logits",
    "pretraining_tp",
    "resid_pdrop",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "summary_activation",
    "summary_first_dropout",
    "summary_proj_to_labels",
    "summary_type",
    "summary_use_proj",
    "gradient_checkpointing",
    // how a run of transformers is done
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_experts_implementation",
    "attn_implementation",
    "cache_implementation",
    "chunk_size_feed_forward",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "scale_attn_weights",
    "task_specific_params",
    "tokenizer_class",
    "torchscript",
    "use_cache",
    "use_return_dict",
    "id2label",
    "label2id",
    "num_labels",
    "problem_type",
    "is_encoder_decoder",
    "n_ctx",
    "pad_token_id",
    "sep_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
    // parts that are left out
    "vision_config",
    "image_token_id",
    "video_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
    "image_token_index",
    "boi_token_index",
    "eoi_token_index",
    "boi_token_id",
    "eoi_token_id",
    "mm_tokens_per_image",
    "mtp_num_hidden_layers",
    "mtp_use_dedicated_embeddings",
    "mamba_ssm_dtype",
    "base_config_key",
    // RoPE of images: for text its three positions are one
    "mrope_interleaved",
    "mrope_section",
};

template <size_t N, typename Row>
const Row* find_row(const Row (&rows)[N], std::string_view type) {
  const auto* it = std::ranges::find(rows, type, &Row::type);
  return it == std::end(rows) ? nullptr : it;
}

}  // namespace

const TypeTraits* find_type(std::string_view type) { return find_row(kTypes, type); }

const WrapperTraits* find_wrapper(std::string_view type) { return find_row(kWrappers, type); }

std::string supported_types() {
  std::vector<std::string_view> types;
  for (const TypeTraits& traits : kTypes) types.push_back(traits.type);
  for (const WrapperTraits& traits : kWrappers) types.push_back(traits.type);
  std::ranges::sort(types);
  return fmt::format("{}", fmt::join(types, ", "));
}

bool is_inert_key(std::string_view key) { return std::ranges::count(kInertKeys, key) > 0; }

}  // namespace ferry::converters
