// The table of model types.
#include "converters/model_types.h"

#include <algorithm>
#include <iterator>

namespace ferry {
namespace {

constexpr std::string_view kQwen35MoeDefaults =
    R"({"head_dim": 256, "num_experts": 256, "num_experts_per_tok": 8,
        "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512})";

constexpr TypeTraits kTypes[] = {
    {.type = "llama"},
    {.type = "mistral", .defaults = R"({"sliding_window": 4096})", .window = WindowRule::kAll},
    {.type = "qwen2",
     .defaults = R"({"sliding_window": 4096, "max_window_layers": 28})",
     .window = WindowRule::kFromLayer,
     .qkv_bias = true},
    {.type = "qwen3",
     .defaults = R"({"sliding_window": 4096, "max_window_layers": 28, "head_dim": 128})",
     .window = WindowRule::kFromLayer},
    {.type = "qwen3_5", .defaults = R"({"head_dim": 256})", .hybrid = true},
    {.type = "qwen3_5_text", .defaults = R"({"head_dim": 256})", .hybrid = true},
    {.type = "qwen3_5_moe",
     .defaults = kQwen35MoeDefaults,
     .hybrid = true,
     .experts = ExpertRule::kAll,
     .shared_expert = true},
    {.type = "qwen3_5_moe_text",
     .defaults = kQwen35MoeDefaults,
     .hybrid = true,
     .experts = ExpertRule::kAll,
     .shared_expert = true},
    {.type = "qwen3_moe",
     .defaults = R"({"sliding_window": 4096, "num_experts_per_tok": 8, "moe_intermediate_size": 768,
                     "norm_topk_prob": false})",
     .window = WindowRule::kAllIfUsed,
     .experts = ExpertRule::kListed},
    {.type = "qwen3_next",
     .defaults = R"({"head_dim": 256, "num_experts": 512, "num_experts_per_tok": 10,
                     "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
                     "norm_topk_prob": true})",
     .hybrid = true,
     .experts = ExpertRule::kListed,
     .shared_expert = true},
};

}  // namespace

const TypeTraits* find_type(std::string_view type) {
  const auto* it = std::find_if(std::begin(kTypes), std::end(kTypes),
                                [&](const TypeTraits& traits) { return traits.type == type; });
  return it == std::end(kTypes) ? nullptr : it;
}

}  // namespace ferry
