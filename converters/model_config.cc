#include "converters/model_config.h"

#include <fmt/format.h>

#include "converters/model_config_parts.h"
#include "core/json.h"
#include "core/text.h"

namespace ferry {
namespace {

Status read_sizes(const JsonFields& fields, const TypeTraits& type, ModelConfig& config) {
  config.vocab_size = FERRY_TRY(fields.required("vocab_size", kSizeRange));
  config.hidden_size = FERRY_TRY(fields.required("hidden_size", kSizeRange));
  config.intermediate_size = type.mlp_ratio > 0
                                 ? FERRY_TRY(fields.integer_or("intermediate_size", kSizeRange,
                                                               type.mlp_ratio * config.hidden_size))
                                 : FERRY_TRY(fields.required("intermediate_size", kSizeRange));
  config.num_layers = FERRY_TRY(fields.required("num_hidden_layers", kLayerRange));
  config.num_heads = FERRY_TRY(fields.required("num_attention_heads", kHeadRange));
  config.num_kv_heads =
      FERRY_TRY(fields.integer_or("num_key_value_heads", kHeadRange, config.num_heads));
  config.max_positions = FERRY_TRY(fields.required("max_position_embeddings", kPositionRange));
  if (config.num_heads % config.num_kv_heads != 0) {
    return fields.bad("num_key_value_heads", fmt::format("is {}, which does not divide {} heads",
                                                         config.num_kv_heads, config.num_heads));
  }
  const auto head_dim = FERRY_TRY(fields.integer("head_dim", kHeadDimRange));
  if (head_dim) {
    config.head_dim = *head_dim;
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

// Gemma has hidden_activation, and where that is absent or null tanh-GELU: its weights were trained
// with it, though older configs say "gelu" under hidden_act.
Result<Activation> read_activation(const JsonFields& fields, const TypeTraits& type) {
  constexpr std::pair<std::string_view, Activation> kNames[] = {
      {"silu", Activation::kSilu},
      {"gelu", Activation::kGelu},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"gelu_new", Activation::kGeluTanh},
  };
  const bool gemma = type.scalars == ScalarRule::kGemma;
  const std::string_view key = gemma ? "hidden_activation" : "hidden_act";
  const std::string name =
      FERRY_TRY(fields.text(key)).value_or(gemma ? "gelu_pytorch_tanh" : "silu");
  for (const auto& [known, activation] : kNames) {
    if (known == name) return activation;
  }
  return fields.error(
      ErrorCode::kUnsupported, key,
      fmt::format("is {}; silu, gelu, gelu_new and gelu_pytorch_tanh are supported", quoted(name)));
}

Status read_layer_details(const JsonFields& fields, const TypeTraits& type, ModelConfig& config) {
  config.rms_norm_eps = FERRY_TRY(fields.number_or("rms_norm_eps", kEpsRange, 1e-6));
  config.activation = FERRY_TRY(read_activation(fields, type));
  config.attention_bias = type.qkv_bias || FERRY_TRY(fields.flag_or("attention_bias", false));
  config.mlp_bias = FERRY_TRY(fields.flag_or("mlp_bias", false));
  if (!FERRY_TRY(fields.flag_or("attn_output_gate", true))) {
    return fields.error(ErrorCode::kUnsupported, "attn_output_gate", "is false: not supported");
  }
  if (FERRY_TRY(fields.flag_or("use_bidirectional_attention", false))) {
    return fields.error(ErrorCode::kUnsupported, "use_bidirectional_attention",
                        "is true: not supported");
  }
  config.num_experts = FERRY_TRY(fields.integer_or("num_experts", kExpertRange, 0));
  config.decoder_sparse_step = FERRY_TRY(fields.integer_or("decoder_sparse_step", kLayerRange, 1));
  config.mlp_only_layers = FERRY_TRY(fields.integers("mlp_only_layers", {0, kLayerRange.max}))
                               .value_or(std::vector<int64_t>{});
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

// A key under another family's name for it; null counts as absent.
void rename_keys(nlohmann::json& object, std::span<const KeyAlias> aliases) {
  for (const KeyAlias& alias : aliases) {
    const auto found = object.find(alias.stated);
    if (found != object.end() && !found->is_null()) object[alias.meant] = *found;
  }
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
  FERRY_CHECK(read_scalars(fields, type, config));
  FERRY_CHECK(read_family_sizes(fields, config));
  FERRY_CHECK(read_rope(fields, type, config));
  FERRY_CHECK(read_layer_types(fields, type, config));
  return read_token_ids(fields, config);
}

}  // namespace

int64_t ModelConfig::rotary_dim() const {
  if (rope.rotary_dim > 0) return rope.rotary_dim;
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
  config.multimodal = text_config.has_value();
  const JsonFields& stated = text_config ? *text_config : outer;
  config.text_type = FERRY_TRY(stated.text("model_type")).value_or(config.model_type);
  FERRY_CHECK(read_token_ids(outer, config));
  const TypeTraits* type = find_type(config.text_type);
  nlohmann::json completed = nlohmann::json::parse(type ? type->defaults : "{}");
  completed.update(text_config ? document["text_config"] : document);
  if (type) rename_keys(completed, type->aliases);
  const JsonFields text(completed, name, text_config ? "text_config." : "");
  Status read = read_text_part(text, type ? *type : TypeTraits{}, config);
  if (!read && !type && read.error().code == ErrorCode::kBadInput) {
    // The keys of a family that is not built are not ours to judge.
    return outer.error(ErrorCode::kUnsupported, "model_type",
                       fmt::format("is {}: not supported", quoted(config.text_type)));
  }
  FERRY_CHECK(std::move(read));
  const bool text_tie = FERRY_TRY(text.flag_or("tie_word_embeddings", false));
  config.tie_word_embeddings = FERRY_TRY(outer.flag_or("tie_word_embeddings", text_tie));

  if (!generation_json.empty()) {
    const std::string generation_name = name + " (generation_config.json)";
    const nlohmann::json generation = FERRY_TRY(parse_object(generation_json, generation_name));
    FERRY_CHECK(read_token_ids(JsonFields(generation, generation_name, ""), config));
  }
  return config;
}

}  // namespace ferry
