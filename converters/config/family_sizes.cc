// Sizes that only some families have, or derive in their own way.
#include <fmt/format.h>

#include "converters/config/model_config_parts.h"

namespace ferry::converters {
namespace {

constexpr FloatRange kMultiplierRange = {1e-3, 1e3};
// Blocks of the first CodeGen; CodeGen2 was trained on twice as many cores where its config states
// head_dim (1B and 3.7B). Nothing else in a config tells them apart.
constexpr int64_t kCodegenBlocks = 4;
constexpr int64_t kCodegen2Blocks = 8;

// Two thirds of the stated size, times a multiplier, rounded up to a multiple.
Status read_lfm2(const JsonFields& fields, ModelConfig& config) {
  config.short_conv.kernel = FERRY_TRY(fields.required("conv_L_cache", kConvRange));
  config.short_conv.bias = FERRY_TRY(fields.flag_or("conv_bias", false));
  if (!FERRY_TRY(fields.flag_or("block_auto_adjust_ff_dim", true))) return {};
  config.intermediate_size = 2 * config.intermediate_size / 3;
  const auto multiplier = FERRY_TRY(fields.number("block_ffn_dim_multiplier", kMultiplierRange));
  if (multiplier) {
    const int64_t multiple = FERRY_TRY(fields.required("block_multiple_of", kSizeRange));
    const auto scaled =
        static_cast<int64_t>(*multiplier * static_cast<double>(config.intermediate_size));
    config.intermediate_size = multiple * ((scaled + multiple - 1) / multiple);
  }
  if (config.intermediate_size >= kSizeRange.min && config.intermediate_size <= kSizeRange.max) {
    return {};
  }
  return fields.bad("intermediate_size",
                    fmt::format("becomes {} by the block_ settings", config.intermediate_size));
}

Status read_codegen(const JsonFields& fields, ModelConfig& config) {
  config.rope.rotary_dim = FERRY_TRY(fields.required("rotary_dim", kHeadDimRange));
  if (config.rope.rotary_dim > config.head_dim || config.rope.rotary_dim % 2 != 0) {
    return fields.bad("rotary_dim", fmt::format("is {}: not an even number up to {}",
                                                config.rope.rotary_dim, config.head_dim));
  }
  if (config.q_size() != config.hidden_size) {
    return fields.bad("head_dim", fmt::format("is {}: {} heads do not make {}", config.head_dim,
                                              config.num_heads, config.hidden_size));
  }
  config.qkv_blocks = fields.find("head_dim") ? kCodegen2Blocks : kCodegenBlocks;
  if (config.num_heads % config.qkv_blocks == 0) return {};
  return fields.bad("num_attention_heads", fmt::format("is {}, not a multiple of {} blocks",
                                                       config.num_heads, config.qkv_blocks));
}

}  // namespace

Status read_family_sizes(const JsonFields& fields, ModelConfig& config) {
  if (config.q_size() > kSizeRange.max) {
    return fields.bad("num_attention_heads", fmt::format("is {}: too many for heads of {}",
                                                         config.num_heads, config.head_dim));
  }
  if (config.text_type == "lfm2") return read_lfm2(fields, config);
  if (config.text_type == "codegen") return read_codegen(fields, config);
  return {};
}

}  // namespace ferry::converters
