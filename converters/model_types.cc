// The table of model types.
#include "converters/model_types.h"

#include <algorithm>
#include <iterator>

namespace ferry {
namespace {

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
    {.type = "qwen3_next", .defaults = R"({"head_dim": 256})", .hybrid = true},
};

}  // namespace

const TypeTraits* find_type(std::string_view type) {
  const auto* it = std::find_if(std::begin(kTypes), std::end(kTypes),
                                [&](const TypeTraits& traits) { return traits.type == type; });
  return it == std::end(kTypes) ? nullptr : it;
}

}  // namespace ferry
