// read_rope() reads the keys of RoPE in config.json. Source: transformers, modeling_rope_utils.py:
// convert_rope_params_to_dict and standardize_rope_params, which decide between two statements of
// one key, and the functions that compute the frequencies of each type.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "converters/config/config_parts.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

using Type = RopeConfig::Type;

constexpr std::string_view kOriginal = "original_max_position_embeddings";
constexpr std::string_view kPartial = "partial_rotary_factor";
constexpr FloatRange kBetaRange = {1e-6, 1e6};
constexpr FloatRange kMscaleRange = {0.0, 1e6};
constexpr FloatRange kAlphaRange = {0.0, 1e6};
constexpr FloatRange kGrowthRange = {0.0, 1e3};
constexpr FloatRange kLongRopeRange = {1e-6, 1e6};

// The places where the keys of one RoPE of a model are stated.
struct RopeKeys {
  const JsonFields& fields;         // the text part of the config
  std::vector<JsonFields> objects;  // at least one; the first that has a key decides
  // Each kind of layer has a RoPE of its own. original_max_position_embeddings beside the objects
  // has no effect.
  bool by_layer = false;
  bool truncate = true;  // for yarn and by_layer, which read the key beside the objects only
  int64_t head_dim = 0;  // of the layers that the RoPE belongs to

  const JsonFields& of(std::string_view key) const {
    for (const JsonFields& object : objects) {
      if (object.states(key)) return object;
    }
    return objects.front();
  }
};

Result<Type> rope_type(const RopeKeys& keys, const ModelType& type) {
  struct Name {
    std::string_view name;
    Type type;
  };
  constexpr Name kNames[] = {{"default", Type::kDefault},   {"linear", Type::kLinear},
                             {"dynamic", Type::kDynamic},   {"llama3", Type::kLlama3},
                             {"longrope", Type::kLongRope}, {"yarn", Type::kYarn}};
  // The first configs of Phi-3 call longrope "su" or "yarn".
  constexpr Name kPhi3Names[] = {{"default", Type::kDefault},
                                 {"longrope", Type::kLongRope},
                                 {"su", Type::kLongRope},
                                 {"yarn", Type::kLongRope}};
  const bool modern = keys.of("rope_type").find("rope_type") != nullptr;
  const std::string_view key = modern ? "rope_type" : "type";
  const JsonFields& object = keys.of(key);
  const std::string stated = FERRY_TRY(object.text(key)).value_or("default");
  const bool phi3 = type.rope == RopeRule::kPhi3;
  if (stated == "proportional" && type.rope == RopeRule::kNested) return Type::kProportional;
  if (stated == "mrope" && type.rope == RopeRule::kMrope) return Type::kDefault;
  for (const Name& row : phi3 ? std::span<const Name>(kPhi3Names) : std::span<const Name>(kNames)) {
    if (row.name != stated) continue;
    if (row.type != Type::kLongRope || !keys.by_layer) return row.type;
    return object.error(ErrorCode::kUnsupported, key,
                        "is longrope in a model whose RoPE differs by layer: not supported");
  }
  return object.error(ErrorCode::kUnsupported, key,
                      fmt::format("is {}; {} are supported", quoted(stated),
                                  phi3 ? "default and longrope"
                                       : "default, linear, dynamic, yarn, llama3 and longrope"));
}

// Reads partial_rotary_factor. The one inside the object wins over the one beside it.
Status read_partial(const RopeKeys& keys, const ModelType& type, Type rope_type,
                    const ModelConfig& config, RopeConfig& out) {
  if (rope_type == Type::kDefault && !type.partial_rope) return {};
  const bool is_read = type.rope != RopeRule::kNested || rope_type == Type::kDefault;
  std::optional<double> outside;
  if (is_read) outside = FERRY_TRY(keys.fields.number(kPartial, kPartialRange));
  const auto inside = FERRY_TRY(keys.of(kPartial).number(kPartial, kPartialRange));
  out.partial_rotary_factor = inside ? *inside : outside.value_or(1.0);
  const auto head = static_cast<double>(keys.head_dim);
  if (type.partial_rope || rope_type == Type::kProportional ||
      static_cast<int64_t>(head * out.partial_rotary_factor) == keys.head_dim) {
    return {};
  }
  return keys.fields.error(ErrorCode::kUnsupported, kPartial,
                           fmt::format("is {}, but {} rotates whole heads",
                                       out.partial_rotary_factor, quoted(config.text_type)));
}

Result<double> required_factor(const RopeKeys& keys) {
  const JsonFields& object = keys.of("factor");
  const auto factor = FERRY_TRY(object.number("factor", kFactorRange));
  if (!factor) return object.bad("factor", "is missing");
  return *factor;
}

Result<int64_t> original_positions(const RopeKeys& keys, const ModelConfig& config) {
  if (!keys.by_layer) {
    const auto outside = FERRY_TRY(keys.fields.integer(kOriginal, kPositionRange));
    if (outside) return *outside;
  }
  return keys.of(kOriginal).integer_or(kOriginal, kPositionRange, config.max_positions);
}

// Reads Hunyuan's alpha, which replaces the factor; 0 and null mean that there is none.
Result<bool> read_alpha(const RopeKeys& keys, RopeConfig& out) {
  const double alpha = FERRY_TRY(keys.of("alpha").number_or("alpha", kAlphaRange, 0.0));
  if (alpha == 0.0) return false;
  const auto head = static_cast<double>(keys.head_dim);
  if (head <= 2) {
    return keys.of("alpha").error(ErrorCode::kUnsupported, "alpha",
                                  "of dynamic RoPE: it is not defined for heads of 2 dimensions");
  }
  out.theta *= std::pow(alpha, head / (head - 2.0));
  return true;
}

// Reads the factor by which the queries of Ministral 3 grow with the position.
Status read_growth(const RopeKeys& keys, RopeConfig& out) {
  const std::string_view key = "llama_4_scaling_beta";
  const auto growth = FERRY_TRY(keys.of(key).number(key, kGrowthRange));
  if (!growth) return keys.of(key).bad(key, "is missing");
  out.query_growth = *growth;
  if (out.original_max_positions > 0) return {};
  out.original_max_positions = FERRY_TRY(keys.of(kOriginal).required(kOriginal, kPositionRange));
  return {};
}

// Reads the factors of cos and sin of Phi-3.5-MoE. The reference chooses between them by the length
// of a sequence, and has the short factors of longrope for sequences of any length.
Status read_mscale(const RopeKeys& keys, ModelConfig& config) {
  RopeConfig& out = config.rope;
  const nlohmann::json* scaling = keys.of("rope_type").find("rope_type");
  if (scaling == nullptr) scaling = keys.of("type").find("type");
  if (scaling == nullptr || *scaling == "default") return {};
  const auto factor = [&](std::string_view key) -> Result<double> {
    const auto stated = FERRY_TRY(keys.of(key).number(key, kFactorRange));
    if (!stated) return keys.of(key).bad(key, "is missing");
    return *stated;
  };
  const int64_t trained = FERRY_TRY(keys.of(kOriginal).required(kOriginal, kPositionRange));
  out.attention_factor = FERRY_TRY(factor("short_mscale"));
  if (FERRY_TRY(factor("long_mscale")) != out.attention_factor && config.max_positions > trained) {
    return keys.of("long_mscale")
        .error(ErrorCode::kUnsupported, "long_mscale", "differs from short_mscale: not supported");
  }
  out.long_factors = out.factors;
  return {};
}

// No context exceeds max_position_embeddings. Up to there, the base of dynamic RoPE differs from
// theta by rounding only.
Status read_dynamic(const RopeKeys& keys, const ModelType& type, const ModelConfig& config,
                    RopeConfig& out) {
  out.type = Type::kDefault;
  if (type.rope == RopeRule::kAlpha && FERRY_TRY(read_alpha(keys, out))) return {};
  const double factor = FERRY_TRY(required_factor(keys));
  const auto rotary = static_cast<double>(
      static_cast<int64_t>(static_cast<double>(keys.head_dim) * out.partial_rotary_factor));
  if (rotary <= 2) {
    return keys.of("factor").error(ErrorCode::kUnsupported, "factor",
                                   "of dynamic RoPE: it is not defined for 2 rotary dimensions");
  }
  const auto positions = static_cast<double>(config.max_positions);
  const double growth = factor * positions / positions - (factor - 1.0);
  out.theta *= std::pow(growth, rotary / (rotary - 2.0));
  return {};
}

// Returns the default of the factor by which yarn multiplies cos and sin.
double yarn_attention(double factor, double mscale, double mscale_all_dim) {
  const auto scale = [&](double m) {
    return factor <= 1.0 ? 1.0 : 0.1 * m * std::log(factor) + 1.0;
  };
  if (mscale == 0.0 || mscale_all_dim == 0.0) return scale(1.0);
  return scale(mscale) / scale(mscale_all_dim);
}

// A value of 0 means the default, as null does.
Result<double> read_beta(const RopeKeys& keys, std::string_view key, double otherwise) {
  const JsonFields& object = keys.of(key);
  const nlohmann::json* stated = object.find(key);
  if (stated != nullptr && *stated == 0) return otherwise;
  return object.number_or(key, kBetaRange, otherwise);
}

Status read_yarn(const RopeKeys& keys, const ModelConfig& config, RopeConfig& out) {
  const JsonFields& object = keys.of("factor");
  out.original_max_positions = FERRY_TRY(original_positions(keys, config));
  const auto factor = FERRY_TRY(object.number("factor", kFactorRange));
  // A null means the ratio of the lengths. An absent key is an error, as in the reference.
  if (!factor && !object.states("factor")) return object.bad("factor", "is missing");
  out.factor = factor.value_or(static_cast<double>(config.max_positions) /
                               static_cast<double>(out.original_max_positions));
  const auto number = [&](std::string_view key, FloatRange range) {
    return keys.of(key).number(key, range);
  };
  const double mscale = FERRY_TRY(number("mscale", kMscaleRange)).value_or(0.0);
  const double mscale_all_dim = FERRY_TRY(number("mscale_all_dim", kMscaleRange)).value_or(0.0);
  const auto attention = FERRY_TRY(number("attention_factor", kFactorRange));
  out.attention_factor =
      attention ? *attention : yarn_attention(out.factor, mscale, mscale_all_dim);
  out.beta_fast = FERRY_TRY(read_beta(keys, "beta_fast", out.beta_fast));
  out.beta_slow = FERRY_TRY(read_beta(keys, "beta_slow", out.beta_slow));
  out.truncate = keys.truncate;
  if (!keys.by_layer) {
    const JsonFields& stating = keys.of("truncate");
    // A null means false here.
    out.truncate = FERRY_TRY(stating.flag("truncate")).value_or(!stating.states("truncate"));
  }
  if (out.theta != 1.0) return {};
  return keys.of("rope_theta").bad("rope_theta", "is 1: yarn divides by its logarithm");
}

Status read_llama3(const RopeKeys& keys, const ModelConfig& config, RopeConfig& out) {
  out.factor = FERRY_TRY(required_factor(keys));
  const JsonFields& object = keys.of("low_freq_factor");
  const auto low = FERRY_TRY(object.number("low_freq_factor", kFactorRange));
  const auto high = FERRY_TRY(keys.of("high_freq_factor").number("high_freq_factor", kFactorRange));
  if (!low) return object.bad("low_freq_factor", "is missing");
  if (!high) return object.bad("high_freq_factor", "is missing");
  // Where the two are equal, as in Llama 4 Scout, no frequency lies between them.
  if (*high < *low) return object.bad("high_freq_factor", "is below low_freq_factor");
  out.low_freq_factor = *low;
  out.high_freq_factor = *high;
  out.original_max_positions = FERRY_TRY(original_positions(keys, config));
  return {};
}

// Rows of sound may go beyond max_position_embeddings, where frequencies of some types change.
Status check_rows_of_sound(const RopeKeys& keys, Type type, const ModelConfig& config) {
  if (!config.audio || !config.audio->takes_samples()) return {};
  if (type != Type::kDynamic && type != Type::kLongRope) return {};
  return keys.fields.error(ErrorCode::kUnsupported, "rope_parameters",
                           "has a rope_type whose frequencies depend on the length: not supported "
                           "for sound");
}

// Reads one RoPE. `theta_key` is the name of its base beside the objects.
Status read_one(const RopeKeys& keys, std::string_view theta_key, const ModelType& type,
                const ModelConfig& config, RopeConfig& out) {
  const JsonFields& stating = keys.of("rope_theta");
  out.theta = stating.states("rope_theta")
                  ? FERRY_TRY(stating.number_or("rope_theta", kThetaRange, out.theta))
                  : FERRY_TRY(keys.fields.number_or(theta_key, kThetaRange, out.theta));
  out.type = FERRY_TRY(rope_type(keys, type));
  FERRY_RETURN_IF_ERROR(check_rows_of_sound(keys, out.type, config));
  FERRY_RETURN_IF_ERROR(read_partial(keys, type, out.type, config, out));
  switch (out.type) {
    case Type::kDefault:
      return {};
    case Type::kLinear:
      out.factor = FERRY_TRY(required_factor(keys));
      return {};
    case Type::kProportional:
      out.factor = FERRY_TRY(keys.of("factor").number_or("factor", kFactorRange, 1.0));
      return {};
    case Type::kDynamic:
      return read_dynamic(keys, type, config, out);
    case Type::kYarn:
      return read_yarn(keys, config, out);
    case Type::kLlama3:
      return read_llama3(keys, config, out);
    case Type::kLongRope:
      out.original_max_positions = FERRY_TRY(original_positions(keys, config));
      return {};  // read_longrope() reads the rest
  }
  return {};
}

// Ignores errors in the RoPE of layers that the model does not have. That RoPE becomes a plain one.
Status if_used(const ModelConfig& config, std::initializer_list<LayerType> users, RopeConfig& rope,
               Status read) {
  if (read) return read;
  for (size_t layer = 0; layer < config.layer_types.size(); ++layer) {
    const bool is_user = std::ranges::count(users, config.layer_types[layer]) > 0;
    if (is_user && config.rope_layers[layer]) return read;
  }
  rope = {};
  return {};
}

Result<std::vector<double>> read_factors(const JsonFields& rope, std::string_view key,
                                         int64_t wanted) {
  auto list = FERRY_TRY(rope.numbers(key, kLongRopeRange));
  if (!list) return rope.bad(key, "is missing");
  if (std::ssize(*list) == wanted) return *std::move(list);
  return rope.bad(
      key, fmt::format("has {} numbers for {} pairs of rotary dimensions", list->size(), wanted));
}

// Reads the factors of longrope (Phi-3, Phi-4-mini) into config.rope. Needs its
// original_max_positions and the rotary dimensions. `rope` is the object under rope_scaling or
// rope_parameters. Source: _compute_longrope_parameters.
Status read_longrope(const JsonFields& rope, ModelConfig& config) {
  RopeConfig& out = config.rope;
  if (out.original_max_positions < 2) {  // its logarithm is a divisor
    return rope.bad("original_max_position_embeddings", "is 1");
  }
  const int64_t pairs = config.rotary_dim() / 2;
  out.factors = FERRY_TRY(read_factors(rope, "short_factor", pairs));
  out.long_factors = FERRY_TRY(read_factors(rope, "long_factor", pairs));

  const auto positions = static_cast<double>(config.max_positions);
  const auto trained = static_cast<double>(out.original_max_positions);
  const auto factor =
      FERRY_TRY(rope.number("factor", kLongRopeRange)).value_or(positions / trained);
  const auto attention = FERRY_TRY(rope.number("attention_factor", kLongRopeRange));
  const double suggested =
      factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(trained));
  out.attention_factor = attention.value_or(suggested);
  return {};
}

// Reads rope_scaling (transformers 4) if it is not empty, else rope_parameters (5).
Status read_shared_rope(const JsonFields& fields, const ModelType& type, ModelConfig& config) {
  const nlohmann::json nothing = nlohmann::json::object();
  RopeKeys keys{.fields = fields, .objects = {}, .head_dim = config.head_dim};
  auto scaling = FERRY_TRY(fields.object("rope_scaling"));
  if (scaling && scaling->size() > 0) {
    keys.objects.push_back(*std::move(scaling));
  } else if (auto parameters = FERRY_TRY(fields.object_or_default("rope_parameters"))) {
    keys.objects.push_back(*std::move(parameters));
  } else {
    keys.objects.emplace_back(nothing, "", "");
  }
  for (const std::string_view key : {"full_attention", "sliding_attention"}) {
    if (!keys.objects[0].find(key)) continue;
    return keys.objects[0].error(ErrorCode::kUnsupported, key,
                                 "differs by layer type: not supported");
  }
  Status read = read_one(keys, "rope_theta", type, config, config.rope);
  if (read && config.rope.type == Type::kLongRope) read = read_longrope(keys.objects[0], config);
  if (read && type.rope == RopeRule::kGrowing) read = read_growth(keys, config.rope);
  if (read && type.rope == RopeRule::kMscale) read = read_mscale(keys, config);
  FERRY_RETURN_IF_ERROR(if_used(config, {LayerType::kFullAttention, LayerType::kSlidingAttention},
                                config.rope, std::move(read)));
  config.sliding_rope = config.rope;
  return {};
}

// transformers 5 has an object for each kind of layer. transformers 4 has rope_theta and
// rope_scaling for full attention and rope_local_base_freq for sliding attention. If a config has
// the keys of both versions, those of rope_scaling replace those of the object. If it has
// rope_scaling alone, they replace those of an object whose rope_type is default, so that "type"
// has no effect.
Status read_rope_by_layer(const JsonFields& fields, const ModelType& type, ModelConfig& config) {
  const nlohmann::json nothing = nlohmann::json::object();
  const JsonFields none(nothing, "", "");
  const nlohmann::json plain = {{"rope_type", "default"}};
  RopeKeys full{.fields = fields, .objects = {}, .by_layer = true, .head_dim = config.head_dim};
  RopeKeys sliding = full;
  const auto scaling = FERRY_TRY(fields.object("rope_scaling"));
  if (scaling) full.objects.push_back(*scaling);
  if (const auto parameters = FERRY_TRY(fields.object("rope_parameters"))) {
    if (auto object = FERRY_TRY(parameters->object("full_attention"))) {
      full.objects.push_back(*std::move(object));
    } else if (scaling) {
      return parameters->bad("full_attention", "is missing");
    }
    if (auto object = FERRY_TRY(parameters->object("sliding_attention"))) {
      sliding.objects.push_back(*std::move(object));
    }
    sliding.truncate = full.truncate =
        FERRY_TRY(parameters->flag("truncate")).value_or(!parameters->states("truncate"));
  }
  const bool stated = fields.find("rope_parameters") != nullptr;
  full.objects.push_back(stated ? none : JsonFields(plain, "", ""));
  sliding.objects.push_back(none);
  FERRY_RETURN_IF_ERROR(if_used(config, {LayerType::kFullAttention}, config.rope,
                                read_one(full, "rope_theta", type, config, config.rope)));
  return if_used(config, {LayerType::kSlidingAttention}, config.sliding_rope,
                 read_one(sliding, "rope_local_base_freq", type, config, config.sliding_rope));
}

// Reads the object of one kind of layer in rope_parameters, without which the reference has no RoPE
// for these layers and fails.
Status read_nested(const JsonFields& fields, const JsonFields& parameters, std::string_view kind,
                   LayerType user, const ModelType& type, ModelConfig& config, RopeConfig& out) {
  RopeKeys keys{
      .fields = fields, .objects = {}, .by_layer = true, .head_dim = config.heads_of(user).dim};
  keys.truncate = FERRY_TRY(parameters.flag("truncate")).value_or(!parameters.states("truncate"));
  auto object = FERRY_TRY(parameters.object(kind));
  if (!object) return parameters.bad(kind, "is missing");
  keys.objects.push_back(*std::move(object));
  if (keys.objects[0].find("rope_theta") == nullptr) {
    return keys.objects[0].bad("rope_theta", "is missing");
  }
  return read_one(keys, "rope_theta", type, config, out);
}

Status read_nested_rope(const JsonFields& fields, const ModelType& type, ModelConfig& config) {
  const auto parameters = FERRY_TRY(fields.object_or_default("rope_parameters"));
  if (!parameters) return fields.bad("rope_parameters", "is missing");
  using enum LayerType;
  FERRY_RETURN_IF_ERROR(if_used(config, {kFullAttention}, config.rope,
                                read_nested(fields, *parameters, "full_attention", kFullAttention,
                                            type, config, config.rope)));
  return if_used(config, {kSlidingAttention}, config.sliding_rope,
                 read_nested(fields, *parameters, "sliding_attention", kSlidingAttention, type,
                             config, config.sliding_rope));
}

}  // namespace

Status read_rope(const JsonFields& fields, const ModelType& type, ModelConfig& config) {
  switch (type.rope) {
    case RopeRule::kNone:
      config.sliding_rope = config.rope;
      return {};
    case RopeRule::kByLayer:
      return read_rope_by_layer(fields, type, config);
    case RopeRule::kNested:
      return read_nested_rope(fields, type, config);
    case RopeRule::kShared:
    case RopeRule::kPhi3:
    case RopeRule::kMrope:
    case RopeRule::kAlpha:
    case RopeRule::kGrowing:
    case RopeRule::kMscale:
      return read_shared_rope(fields, type, config);
  }
  return {};
}

}  // namespace ferry::converters
