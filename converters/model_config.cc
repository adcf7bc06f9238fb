#include "converters/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>

#include "converters/json_fields.h"
#include "core/json.h"
#include "core/text.h"

namespace ferry {
namespace {

// Generous bounds: far above any model, low enough that products of a few sizes fit 64 bits.
constexpr IntRange kSizeRange = {1, int64_t{1} << 24};
constexpr IntRange kLayerRange = {1, 1024};
constexpr IntRange kHeadRange = {1, 4096};
constexpr IntRange kHeadDimRange = {1, 1 << 16};
constexpr IntRange kPositionRange = {1, INT32_MAX};
constexpr IntRange kConvRange = {1, 64};
constexpr IntRange kExpertRange = {0, 1 << 16};
constexpr IntRange kTokenRange = {INT32_MIN, INT32_MAX};
constexpr FloatRange kEpsRange = {1e-30, 1.0};
constexpr FloatRange kThetaRange = {1e-3, 1e15};
constexpr FloatRange kFactorRange = {1e-3, 1e6};
constexpr FloatRange kPartialRange = {1e-3, 1.0};

// What a model_type means beyond its keys: the defaults of transformers' configuration classes for
// keys that a config may leave out, and how layer types follow where they are not listed.
enum class WindowRule {
  kNever,     // all attention is full, whatever the config says about windows
  kAll,       // every layer, where sliding_window is set
  kFromLayer  // layers from max_window_layers on, where use_sliding_window is set
};
struct TypeTraits {
  std::string_view type;
  WindowRule window = WindowRule::kNever;
  int64_t default_window = 0;    // 0: none
  bool qkv_bias = false;         // q, k and v always have a bias
  int64_t default_head_dim = 0;  // 0: hidden_size / num_attention_heads
  bool hybrid = false;           // linear attention but for every full_attention_interval-th layer
};
constexpr std::array<TypeTraits, 7> kTypes = {{
    {.type = "llama"},
    {.type = "mistral", .window = WindowRule::kAll, .default_window = 4096},
    {.type = "qwen2", .window = WindowRule::kFromLayer, .default_window = 4096, .qkv_bias = true},
    {.type = "qwen3",
     .window = WindowRule::kFromLayer,
     .default_window = 4096,
     .default_head_dim = 128},
    {.type = "qwen3_5", .default_head_dim = 256, .hybrid = true},
    {.type = "qwen3_5_text", .default_head_dim = 256, .hybrid = true},
    {.type = "qwen3_next", .default_head_dim = 256, .hybrid = true},
}};
constexpr double kHybridPartialRotaryFactor = 0.25;
constexpr int64_t kDefaultFullAttentionInterval = 4;

const TypeTraits* find_type(std::string_view type) {
  const auto* it = std::find_if(kTypes.begin(), kTypes.end(),
                                [&](const TypeTraits& traits) { return traits.type == type; });
  return it == kTypes.end() ? nullptr : it;
}

Result<int64_t> required(const JsonFields& fields, std::string_view key, IntRange range) {
  const auto value = FERRY_TRY(fields.integer(key, range));
  if (!value) return fields.bad(key, "is missing");
  return *value;
}

Result<int64_t> integer_or(const JsonFields& fields, std::string_view key, IntRange range,
                           int64_t otherwise) {
  return FERRY_TRY(fields.integer(key, range)).value_or(otherwise);
}

Result<double> number_or(const JsonFields& fields, std::string_view key, FloatRange range,
                         double otherwise) {
  return FERRY_TRY(fields.number(key, range)).value_or(otherwise);
}

Result<bool> flag_or(const JsonFields& fields, std::string_view key, bool otherwise) {
  return FERRY_TRY(fields.flag(key)).value_or(otherwise);
}

Status read_sizes(const JsonFields& fields, const TypeTraits& type, ModelConfig& config) {
  config.vocab_size = FERRY_TRY(required(fields, "vocab_size", kSizeRange));
  config.hidden_size = FERRY_TRY(required(fields, "hidden_size", kSizeRange));
  config.intermediate_size = FERRY_TRY(required(fields, "intermediate_size", kSizeRange));
  config.num_layers = FERRY_TRY(required(fields, "num_hidden_layers", kLayerRange));
  config.num_heads = FERRY_TRY(required(fields, "num_attention_heads", kHeadRange));
  config.num_kv_heads =
      FERRY_TRY(integer_or(fields, "num_key_value_heads", kHeadRange, config.num_heads));
  config.max_positions = FERRY_TRY(required(fields, "max_position_embeddings", kPositionRange));
  if (config.num_heads % config.num_kv_heads != 0) {
    return fields.bad("num_key_value_heads", fmt::format("is {}, which does not divide {} heads",
                                                         config.num_kv_heads, config.num_heads));
  }
  const auto head_dim = FERRY_TRY(fields.integer("head_dim", kHeadDimRange));
  if (head_dim || type.default_head_dim > 0) {
    config.head_dim = head_dim.value_or(type.default_head_dim);
    return {};
  }
  if (config.hidden_size % config.num_heads != 0) {
    return fields.bad("num_attention_heads", fmt::format("is {}, which does not divide hidden_size "
                                                         "{}, and there is no head_dim",
                                                         config.num_heads, config.hidden_size));
  }
  config.head_dim = config.hidden_size / config.num_heads;
  return {};
}

Status read_layer_details(const JsonFields& fields, const TypeTraits& type, ModelConfig& config) {
  config.rms_norm_eps = FERRY_TRY(number_or(fields, "rms_norm_eps", kEpsRange, 1e-6));
  config.hidden_act = FERRY_TRY(fields.text("hidden_act")).value_or("silu");
  if (config.hidden_act != "silu") {
    return fields.error(ErrorCode::kUnsupported, "hidden_act",
                        fmt::format("is {}, only 'silu' is supported", quoted(config.hidden_act)));
  }
  config.attention_bias = type.qkv_bias || FERRY_TRY(flag_or(fields, "attention_bias", false));
  config.mlp_bias = FERRY_TRY(flag_or(fields, "mlp_bias", false));
  if (!FERRY_TRY(flag_or(fields, "attn_output_gate", true))) {
    return fields.error(ErrorCode::kUnsupported, "attn_output_gate", "is false: not supported");
  }
  config.num_experts = FERRY_TRY(integer_or(fields, "num_experts", kExpertRange, 0));
  config.decoder_sparse_step = FERRY_TRY(integer_or(fields, "decoder_sparse_step", kLayerRange, 1));
  config.mlp_only_layers = FERRY_TRY(fields.integers("mlp_only_layers", {0, kLayerRange.max}))
                               .value_or(std::vector<int64_t>{});
  return {};
}

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
  if (type != "linear" && type != "llama3") {
    return rope.error(ErrorCode::kUnsupported, key,
                      fmt::format("is {}; default, linear and llama3 are supported", quoted(type)));
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

Status read_rope(const JsonFields& fields, const TypeTraits& type, ModelConfig& config) {
  RopeConfig& out = config.rope;
  const std::optional<JsonFields> rope = FERRY_TRY(rope_object(fields));
  out.theta = FERRY_TRY(number_or(fields, "rope_theta", kThetaRange, out.theta));
  const double otherwise = type.hybrid ? kHybridPartialRotaryFactor : 1.0;
  auto partial = FERRY_TRY(fields.number("partial_rotary_factor", kPartialRange));
  if (rope) {
    // Inside the object rope_theta wins over the one beside it, partial_rotary_factor loses.
    out.theta = FERRY_TRY(number_or(*rope, "rope_theta", kThetaRange, out.theta));
    const auto inner = FERRY_TRY(rope->number("partial_rotary_factor", kPartialRange));
    if (!partial) partial = inner;
    FERRY_CHECK(read_rope_type(fields, *rope, out));
  }
  out.partial_rotary_factor = partial.value_or(otherwise);
  const int64_t rotary = config.rotary_dim();
  if (rotary < 2 || rotary % 2 != 0) {
    return fields.bad("head_dim",
                      fmt::format("is {}: RoPE would turn {} dimensions of it, which is "
                                  "not a positive even number",
                                  config.head_dim, rotary));
  }
  return {};
}

Status read_linear_attention(const JsonFields& fields, ModelConfig& config) {
  LinearAttentionConfig& linear = config.linear;
  linear.key_heads = FERRY_TRY(required(fields, "linear_num_key_heads", kHeadRange));
  linear.value_heads = FERRY_TRY(required(fields, "linear_num_value_heads", kHeadRange));
  linear.key_dim = FERRY_TRY(required(fields, "linear_key_head_dim", kHeadDimRange));
  linear.value_dim = FERRY_TRY(required(fields, "linear_value_head_dim", kHeadDimRange));
  linear.conv_kernel = FERRY_TRY(required(fields, "linear_conv_kernel_dim", kConvRange));
  if (linear.value_heads % linear.key_heads == 0) return {};
  return fields.bad("linear_num_value_heads", fmt::format("is {}, not a multiple of {} key heads",
                                                          linear.value_heads, linear.key_heads));
}

Result<std::optional<int64_t>> read_window(const JsonFields& fields, const TypeTraits& type) {
  // Absent and null differ here: absent means the default of the class, null means none.
  const bool null = fields.is_null("sliding_window");
  const auto window = FERRY_TRY(fields.integer("sliding_window", kPositionRange));
  if (type.window == WindowRule::kNever) return std::nullopt;
  if (type.window == WindowRule::kFromLayer &&
      !FERRY_TRY(flag_or(fields, "use_sliding_window", false))) {
    return std::nullopt;
  }
  if (window || null || type.default_window == 0) return window;
  return type.default_window;
}

Result<std::vector<LayerType>> derived_layer_types(const JsonFields& fields, const TypeTraits& type,
                                                   const ModelConfig& config, bool window) {
  const int64_t interval = FERRY_TRY(
      integer_or(fields, "full_attention_interval", kLayerRange, kDefaultFullAttentionInterval));
  const int64_t first_windowed =
      FERRY_TRY(integer_or(fields, "max_window_layers", {0, INT32_MAX}, 28));
  std::vector<LayerType> types;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const bool slides = window && (type.window == WindowRule::kAll || layer >= first_windowed);
    const bool linear = type.hybrid && (layer + 1) % interval != 0;
    types.push_back(linear   ? LayerType::kLinearAttention
                    : slides ? LayerType::kSlidingAttention
                             : LayerType::kFullAttention);
  }
  return types;
}

Result<std::vector<LayerType>> listed_layer_types(const JsonFields& fields,
                                                  const nlohmann::json& list) {
  constexpr std::array<std::pair<std::string_view, LayerType>, 3> kNames = {{
      {"full_attention", LayerType::kFullAttention},
      {"sliding_attention", LayerType::kSlidingAttention},
      {"linear_attention", LayerType::kLinearAttention},
  }};
  std::vector<LayerType> types;
  if (!list.is_array()) return fields.bad("layer_types", "is not an array");
  for (const nlohmann::json& item : list) {
    if (!item.is_string()) return fields.bad("layer_types", "has an element that is not a string");
    const std::string& name = item.get_ref<const std::string&>();
    const auto* known = std::find_if(kNames.begin(), kNames.end(),
                                     [&](const auto& row) { return row.first == name; });
    if (known == kNames.end()) {
      return fields.error(ErrorCode::kUnsupported, "layer_types",
                          fmt::format("has the unknown type {}", quoted(name)));
    }
    types.push_back(known->second);
  }
  return types;
}

Status read_layer_types(const JsonFields& fields, const TypeTraits& type, ModelConfig& config) {
  const auto window = FERRY_TRY(read_window(fields, type));
  config.layer_types = FERRY_TRY(derived_layer_types(fields, type, config, window.has_value()));
  if (const nlohmann::json* list = fields.find("layer_types")) {
    auto listed = FERRY_TRY(listed_layer_types(fields, *list));
    if (std::ssize(listed) != config.num_layers) {
      return fields.bad("layer_types", fmt::format("has {} elements for {} layers", listed.size(),
                                                   config.num_layers));
    }
    // Such families take no notice of the list; going on would build another model than theirs.
    const bool ignored = !type.hybrid && type.window != WindowRule::kFromLayer;
    if (ignored && listed != config.layer_types) {
      return fields.error(ErrorCode::kUnsupported, "layer_types",
                          fmt::format("differs from what {} does", quoted(config.text_type)));
    }
    config.layer_types = std::move(listed);
  }
  const auto has = [&](LayerType wanted) {
    return std::ranges::count(config.layer_types, wanted) > 0;
  };
  if (has(LayerType::kLinearAttention)) {
    if (!type.hybrid) {
      return fields.error(ErrorCode::kUnsupported, "layer_types", "has linear attention");
    }
    FERRY_CHECK(read_linear_attention(fields, config));
  }
  if (has(LayerType::kSlidingAttention)) {
    if (!window) return fields.bad("sliding_window", "is missing, but layer_types wants it");
    config.sliding_window = window;
  }
  return {};
}

// Negative ids, which some configs have for "none", cannot be generated and are left out.
Status read_token_ids(const JsonFields& fields, ModelConfig& config) {
  if (const auto bos = FERRY_TRY(fields.integer("bos_token_id", kTokenRange))) {
    config.bos_id = *bos < 0 ? std::nullopt : bos;
  }
  if (auto eos = FERRY_TRY(fields.integers("eos_token_id", kTokenRange))) {
    std::erase_if(*eos, [](int64_t id) { return id < 0; });
    config.eos_ids = *std::move(eos);
  }
  return {};
}

Result<nlohmann::json> parse_object(const std::string& text, const std::string& name) {
  nlohmann::json document = FERRY_TRY(parse_json(text, name));
  if (!document.is_object()) return bad_input(name + ": not a JSON object");
  return document;
}

// The quantised forms pack several elements into one; reading them as plain tensors would be wrong.
Status refuse_quantization(const JsonFields& fields) {
  for (const std::string_view key : {"quantization_config", "compression_config"}) {
    if (!fields.find(key)) continue;
    return fields.error(ErrorCode::kUnsupported, key,
                        "is present: quantised checkpoints are not supported");
  }
  return {};
}

Status read_text_part(const JsonFields& fields, const TypeTraits& type, ModelConfig& config) {
  FERRY_CHECK(refuse_quantization(fields));
  FERRY_CHECK(read_sizes(fields, type, config));
  FERRY_CHECK(read_layer_details(fields, type, config));
  FERRY_CHECK(read_rope(fields, type, config));
  FERRY_CHECK(read_layer_types(fields, type, config));
  return read_token_ids(fields, config);
}

}  // namespace

int64_t ModelConfig::rotary_dim() const {
  return static_cast<int64_t>(static_cast<double>(head_dim) * rope.partial_rotary_factor);
}

Result<ModelConfig> parse_model_config(const std::string& config_json,
                                       const std::string& generation_json,
                                       const std::string& name) {
  const nlohmann::json document = FERRY_TRY(parse_object(config_json, name));
  const JsonFields outer(document, name, "");
  ModelConfig config;
  const auto model_type = FERRY_TRY(outer.text("model_type"));
  if (!model_type) return outer.bad("model_type", "is missing");
  config.model_type = *model_type;
  FERRY_CHECK(refuse_quantization(outer));

  const auto text_config = FERRY_TRY(outer.object("text_config"));
  const JsonFields& text = text_config ? *text_config : outer;
  config.multimodal = text_config.has_value();
  config.text_type = FERRY_TRY(text.text("model_type")).value_or(config.model_type);
  FERRY_CHECK(read_token_ids(outer, config));
  const TypeTraits* type = find_type(config.text_type);
  Status read = read_text_part(text, type ? *type : TypeTraits{}, config);
  if (!read && !type && read.error().code == ErrorCode::kBadInput) {
    // The keys of a family that is not built are not ours to judge.
    return outer.error(ErrorCode::kUnsupported, "model_type",
                       fmt::format("is {}: not supported", quoted(config.text_type)));
  }
  FERRY_CHECK(std::move(read));
  const bool text_tie = FERRY_TRY(flag_or(text, "tie_word_embeddings", false));
  config.tie_word_embeddings = FERRY_TRY(flag_or(outer, "tie_word_embeddings", text_tie));

  if (!generation_json.empty()) {
    const std::string generation_name = name + " (generation_config.json)";
    const nlohmann::json generation = FERRY_TRY(parse_object(generation_json, generation_name));
    FERRY_CHECK(read_token_ids(JsonFields(generation, generation_name, ""), config));
  }
  return config;
}

std::vector<float> rope_inverse_frequencies(const ModelConfig& config) {
  const RopeConfig& rope = config.rope;
  const int64_t rotary_dim = config.rotary_dim();
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
    float frequency = 1.0f / std::pow(theta, exponent);
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
