#include "converters/config/head_checks.h"

#include <fmt/format.h>

namespace ferry::converters {

Status check_whole_heads(const JsonFields& fields, ModelConfig& config) {
  if (config.q_size() == config.hidden_size) return {};
  return fields.bad("head_dim", fmt::format("is {}: {} heads do not make {}", config.head_dim,
                                            config.num_heads, config.hidden_size));
}

}  // namespace ferry::converters
