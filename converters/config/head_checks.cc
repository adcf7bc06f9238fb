#include "converters/config/head_checks.h"

#include <fmt/format.h>

#include "converters/config/ranges.h"

namespace ferry::converters {

Status check_whole_heads(const JsonFields& fields, ModelConfig& config) {
  if (config.q_size() == config.hidden_size) return {};
  return fields.bad("head_dim", fmt::format("is {}: {} heads do not make {}", config.head_dim,
                                            config.num_heads, config.hidden_size));
}

Status check_head_blocks(const JsonFields& fields, const ModelConfig& config, int64_t blocks) {
  if (config.num_heads % blocks == 0) return {};
  return fields.bad("num_attention_heads",
                    fmt::format("is {}, not a multiple of {} blocks", config.num_heads, blocks));
}

Status read_rotary_dim(const JsonFields& fields, ModelConfig& config) {
  const int64_t dim = FERRY_TRY(fields.required("rotary_dim", kHeadDimRange));
  config.rope.rotary_dim = dim;
  if (dim <= config.head_dim && dim % 2 == 0) return {};
  return fields.bad("rotary_dim",
                    fmt::format("is {}: not an even number up to {}", dim, config.head_dim));
}

}  // namespace ferry::converters
