// The table of model types.
#include "converters/model_types.h"

#include <algorithm>
#include <iterator>

namespace ferry {
namespace {

constexpr KeyAlias kLfm2Keys[] = {{"norm_eps", "rms_norm_eps"},
                                  {"block_ff_dim", "intermediate_size"},
                                  {"tie_embedding", "tie_word_embeddings"},
                                  {"theta", "rope_theta"}};
constexpr KeyAlias kCodegenKeys[] = {{"n_embd", "hidden_size"},
                                     {"n_layer", "num_hidden_layers"},
                                     {"n_head", "num_attention_heads"},
                                     {"n_positions", "max_position_embeddings"},
                                     {"n_inner", "intermediate_size"},
                                     {"layer_norm_epsilon", "rms_norm_eps"},
                                     {"activation_function", "hidden_act"}};

constexpr TypeTraits kTypes[] = {
    {.type = "llama"},
    {.type = "mistral", .defaults = R"({"sliding_window": 4096})", .window = WindowRule::kAll},
    {.type = "phi3",
     .defaults = R"({"rms_norm_eps": 1e-5, "original_max_position_embeddings": 4096})",
     .window = WindowRule::kAll},
    {.type = "glm",
     .defaults = R"({"rms_norm_eps": 1.5625e-7, "attention_bias": true, "head_dim": 128,
                     "num_key_value_heads": 2})",
     .partial_rotary_factor = 0.5},
    {.type = "lfm2",
     .defaults = R"({"norm_eps": 1e-5, "rope_theta": 1000000.0, "num_key_value_heads": 8,
                     "tie_word_embeddings": true, "block_auto_adjust_ff_dim": true,
                     "block_multiple_of": 256, "block_ffn_dim_multiplier": 1.0,
                     "conv_L_cache": 3})",
     .aliases = kLfm2Keys,
     .convs = true},
    {.type = "codegen",
     .defaults = R"({"n_positions": 2048, "rotary_dim": 64, "layer_norm_epsilon": 1e-5,
                     "activation_function": "gelu_new"})",
     .aliases = kCodegenKeys,
     .mlp_ratio = 4},
    {.type = "qwen2",
     .defaults = R"({"sliding_window": 4096, "max_window_layers": 28})",
     .window = WindowRule::kFromLayer,
     .qkv_bias = true},
    {.type = "qwen3",
     .defaults = R"({"sliding_window": 4096, "max_window_layers": 28, "head_dim": 128})",
     .window = WindowRule::kFromLayer},
    {.type = "gemma",
     .defaults = R"({"head_dim": 256, "tie_word_embeddings": true})",
     .scalars = ScalarRule::kGemma},
    {.type = "gemma2",
     .defaults = R"({"head_dim": 256, "tie_word_embeddings": true, "query_pre_attn_scalar": 256,
                     "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
                     "sliding_window": 4096, "sliding_window_pattern": 2})",
     .window = WindowRule::kPattern,
     .scalars = ScalarRule::kGemma},
    // Released configs leave out most of what their class has as a default.
    {.type = "gemma3_text",
     .defaults = R"({"vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
                     "num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4,
                     "head_dim": 256, "max_position_embeddings": 131072,
                     "tie_word_embeddings": true, "query_pre_attn_scalar": 256,
                     "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
                     "sliding_window": 4096, "sliding_window_pattern": 6})",
     .window = WindowRule::kPattern,
     .sliding_rope = true,
     .scalars = ScalarRule::kGemma},
    {.type = "granite", .scalars = ScalarRule::kGranite},
    {.type = "olmo2", .defaults = R"({"rms_norm_eps": 1e-5})"},
    {.type = "smollm3",
     .defaults = R"({"rope_theta": 2000000.0, "no_rope_layer_interval": 4,
                     "tie_word_embeddings": true})",
     .window = WindowRule::kWhereNoRope,
     .nope = true},
    {.type = "qwen3_5",
     .defaults = R"({"head_dim": 256})",
     .partial_rotary_factor = 0.25,
     .hybrid = true},
    {.type = "qwen3_5_text",
     .defaults = R"({"head_dim": 256})",
     .partial_rotary_factor = 0.25,
     .hybrid = true},
    {.type = "qwen3_next",
     .defaults = R"({"head_dim": 256})",
     .partial_rotary_factor = 0.25,
     .hybrid = true},
};

}  // namespace

const TypeTraits* find_type(std::string_view type) {
  const auto* it = std::find_if(std::begin(kTypes), std::end(kTypes),
                                [&](const TypeTraits& traits) { return traits.type == type; });
  return it == std::end(kTypes) ? nullptr : it;
}

}  // namespace ferry
