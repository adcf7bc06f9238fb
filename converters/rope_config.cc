// RoPE: its keys in config.json, and its frequencies.
#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "converters/longrope.h"
#include "converters/model_config_parts.h"
#include "core/text.h"

namespace ferry {
namespace {

// rope_parameters (transformers 5) or rope_scaling (4); nullopt means no scaling.
Result<std::optional<JsonFields>> rope_object(const JsonFields& fields) {
  const auto scaling = FERRY_TRY(fields.object("rope_scaling"));
  const auto parameters = FERRY_TRY(fields.object("rope_parameters"));
  // transformers 5 takes rope_scaling first where a config has both.
  return scaling ? scaling : parameters;
}

Status read_rope_type(const JsonFields& fields, const JsonFields& rope, RopeConfig& out) {
  for (const std::string_view key : {"full_attention", "sliding_attention"}) {
    if (!rope.find(key)) continue;
    return rope.error(ErrorCode::kUnsupported, key, "differs by layer type: not supported");
  }
  const bool modern = rope.find("rope_type") != nullptr;
  const std::string_view key = modern ? "rope_type" : "type";
  const std::string type = FERRY_TRY(rope.text(key)).value_or("default");
  if (type == "default") return {};
  if (type == "longrope" || type == "su") {  // "su" in the first configs of Phi-3
    out.type = RopeConfig::Type::kLongRope;
    return {};
  }
  if (type != "linear" && type != "llama3") {
    return rope.error(
        ErrorCode::kUnsupported, key,
        fmt::format("is {}; default, linear, llama3 and longrope are supported", quoted(type)));
  }
  const auto factor = FERRY_TRY(rope.number("factor", kFactorRange));
  if (!factor) return rope.bad("factor", "is missing");
  out.factor = *factor;
  out.type = RopeConfig::Type::kLinear;
  if (type == "linear") return {};

  out.type = RopeConfig::Type::kLlama3;
  const auto low = FERRY_TRY(rope.number("low_freq_factor", kFactorRange));
  const auto high = FERRY_TRY(rope.number("high_freq_factor", kFactorRange));
  if (!low) return rope.bad("low_freq_factor", "is missing");
  if (!high) return rope.bad("high_freq_factor", "is missing");
  if (*high <= *low) return rope.bad("high_freq_factor", "is not above low_freq_factor");
  out.low_freq_factor = *low;
  out.high_freq_factor = *high;
  const std::string_view original = "original_max_position_embeddings";
  const auto inside = FERRY_TRY(rope.integer(original, kPositionRange));
  const auto outside = FERRY_TRY(fields.integer(original, kPositionRange));
  if (!inside && !outside) return rope.bad(original, "is missing");
  out.original_max_positions = inside ? *inside : *outside;
  return {};
}

// `rope` may be absent. Inside it rope_theta wins over `theta_key` beside it.
Status read_one(const JsonFields& fields, std::string_view theta_key,
                const std::optional<JsonFields>& rope, RopeConfig& out) {
  out.theta = FERRY_TRY(fields.number_or(theta_key, kThetaRange, out.theta));
  if (!rope) return {};
  out.theta = FERRY_TRY(rope->number_or("rope_theta", kThetaRange, out.theta));
  return read_rope_type(fields, *rope, out);
}

Status read_shared_rope(const JsonFields& fields, const TypeTraits& type, ModelConfig& config) {
  const std::optional<JsonFields> rope = FERRY_TRY(rope_object(fields));
  FERRY_CHECK(read_one(fields, "rope_theta", rope, config.rope));
  auto partial = FERRY_TRY(fields.number("partial_rotary_factor", kPartialRange));
  // Other than rope_theta, this one wins where it stands beside the object.
  if (rope && !partial) {
    partial = FERRY_TRY(rope->number("partial_rotary_factor", kPartialRange));
  }
  config.rope.partial_rotary_factor = partial.value_or(type.partial_rotary_factor);
  if (config.rope.type == RopeConfig::Type::kLongRope) {
    FERRY_CHECK(read_longrope(fields, *rope, config));
  }
  config.sliding_rope = config.rope;
  return {};
}

// transformers 5 has an object for each kind of layer; 4 has rope_theta and rope_scaling for full
// attention, rope_local_base_freq for sliding.
Status read_rope_by_kind(const JsonFields& fields, ModelConfig& config) {
  const auto parameters = FERRY_TRY(fields.object("rope_parameters"));
  std::optional<JsonFields> full, sliding;
  if (parameters) {
    full = FERRY_TRY(parameters->object("full_attention"));
    sliding = FERRY_TRY(parameters->object("sliding_attention"));
    if (!full) return parameters->bad("full_attention", "is missing");
  }
  FERRY_CHECK(read_one(fields, "rope_theta", full, config.rope));
  FERRY_CHECK(read_one(fields, "rope_local_base_freq", sliding, config.sliding_rope));
  const auto scaling = FERRY_TRY(fields.object("rope_scaling"));
  if (scaling) FERRY_CHECK(read_rope_type(fields, *scaling, config.rope));
  for (const RopeConfig* rope : {&config.rope, &config.sliding_rope}) {
    if (rope->type != RopeConfig::Type::kLongRope) continue;
    return fields.error(ErrorCode::kUnsupported, "rope_scaling",
                        "is longrope in a model whose RoPE differs by layer: not supported");
  }
  return {};
}

}  // namespace

Status read_rope(const JsonFields& fields, const TypeTraits& type, ModelConfig& config) {
  FERRY_CHECK(type.sliding_rope ? read_rope_by_kind(fields, config)
                                : read_shared_rope(fields, type, config));
  const int64_t rotary = config.rotary_dim();
  if (rotary < 2 || rotary % 2 != 0) {
    return fields.bad("head_dim",
                      fmt::format("is {}: RoPE would turn {} dimensions of it, which is "
                                  "not a positive even number",
                                  config.head_dim, rotary));
  }
  return {};
}

std::vector<float> rope_inverse_frequencies(const RopeConfig& rope, int64_t rotary_dim) {
  const auto theta = static_cast<float>(rope.theta);
  const auto factor = static_cast<float>(rope.factor);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto range = static_cast<float>(rope.high_freq_factor - rope.low_freq_factor);
  const auto original = static_cast<double>(rope.original_max_positions);
  const auto long_wave = static_cast<float>(original / rope.low_freq_factor);
  const auto short_wave = static_cast<float>(original / rope.high_freq_factor);

  std::vector<float> frequencies;
  for (int64_t i = 0; i < rotary_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(rotary_dim);
    float power = std::pow(theta, exponent);
    if (!rope.factors.empty())
      power *= static_cast<float>(rope.factors[static_cast<size_t>(i / 2)]);
    float frequency = 1.0f / power;
    if (rope.type == RopeConfig::Type::kLinear) frequency /= factor;
    if (rope.type == RopeConfig::Type::kLlama3) {
      // Long waves are slowed down, short ones kept, those between interpolated.
      const float wave = static_cast<float>(2 * std::numbers::pi) / frequency;
      const float smooth = (static_cast<float>(original) / wave - low) / range;
      if (wave > long_wave) {
        frequency /= factor;
      } else if (wave >= short_wave) {
        frequency = (1.0f - smooth) * frequency / factor + smooth * frequency;
      }
    }
    frequencies.push_back(frequency);
  }
  return frequencies;
}

}  // namespace ferry
