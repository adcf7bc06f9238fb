// Reads what the configs of encoder-decoders say beside that of their layers.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "converters/config/config_parts.h"
#include "core/text.h"

namespace ferry::converters {

Status check_states_true(const JsonFields& fields, std::string_view key) {
  const nlohmann::json* value = fields.find(key);
  if (!fields.states(key) || (value != nullptr && *value == true)) return {};
  return fields.error(ErrorCode::kUnsupported, key,
                      "is not true: another model than an encoder with a causal decoder");
}

// Masks of the reference follow is_causal, and generate() follows is_encoder_decoder.
Status check_encoder_decoder(const JsonFields& fields) {
  FERRY_RETURN_IF_ERROR(check_states_true(fields, "is_encoder_decoder"));
  return check_states_true(fields, "is_causal");
}

// The reference takes what generation_config.json states, else what the config states.
Status read_start(std::initializer_list<const JsonFields*> objects, ModelConfig& config) {
  for (const char* key : {"decoder_start_token_id", "bos_token_id"}) {
    for (const JsonFields* fields : objects) {
      const auto start = FERRY_TRY(fields->integer(key, kTokenRange));
      if (!start || *start < 0) continue;
      config.decoder_start_id = start;
      return {};
    }
  }
  return {};
}

Result<JsonFields> layer_part(const JsonFields& outer, const ConfigPart& part) {
  static const nlohmann::json kAllDefaults = nlohmann::json::object();
  constexpr size_t kShown = 40;
  const auto stated = FERRY_TRY(outer.object(part.key));
  if (!stated) return JsonFields(kAllDefaults, std::string(part.key), "");
  const std::string type = FERRY_TRY(stated->text("model_type")).value_or(std::string(part.type));
  if (type == part.type) return *stated;
  return stated->error(ErrorCode::kUnsupported, "model_type",
                       fmt::format("is {}, not {}", quoted(type, kShown), part.type));
}

Status read_source_part(const JsonFields& outer, const ModelType& type, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(check_states_true(outer, "is_encoder_decoder"));
  (void)outer.find("vocab_size");  // that of the decoder counts
  JsonFields fields = FERRY_TRY(layer_part(outer, type.source_part));
  const nlohmann::json defaults = nlohmann::json::parse(type.defaults);
  std::vector<KeyNames> names = type.names;
  for (const std::string_view key : type.unread) names.push_back({key, {}});
  fields.set_defaults(defaults);
  fields.set_names(names);
  ModelType both_ways = type;
  both_ways.two_way = TwoWayRule::kRadius;
  ModelConfig encoder;
  encoder.family = config.family;
  encoder.model_type = config.model_type;
  encoder.text_type = config.text_type;
  encoder.only_encodes = true;  // readers tell the two parts apart by it
  FERRY_RETURN_IF_ERROR(read_text_part(fields, both_ways, encoder));
  if (encoder.vocab_size != config.vocab_size) {
    return fields.error(ErrorCode::kUnsupported, "vocab_size",
                        fmt::format("is {}, another number than the {} of the decoder",
                                    encoder.vocab_size, config.vocab_size));
  }
  config.source = SourceConfig{.hidden_size = encoder.hidden_size,
                               .num_layers = encoder.num_layers,
                               .num_heads = encoder.num_heads,
                               .head_dim = encoder.head_dim,
                               .intermediate_size = encoder.intermediate_size,
                               .bias = config.attention_bias,
                               .max_positions = encoder.max_positions};
  config.own_source = {std::move(encoder)};
  return read_token_ids(outer, config);
}

ModelConfig ModelConfig::source_encoder() const {
  if (!own_source.empty()) return own_source.front();
  ModelConfig encoder = *this;
  encoder.num_layers = source->num_layers;
  encoder.num_heads = encoder.num_kv_heads = source->num_heads;
  encoder.head_dim = source->head_dim;
  encoder.intermediate_size = source->intermediate_size;
  encoder.max_positions = source->max_positions;
  encoder.layer_types.assign(static_cast<size_t>(source->num_layers), LayerType::kFullAttention);
  encoder.rope_layers.assign(static_cast<size_t>(source->num_layers), false);
  encoder.two_way = encoder.only_encodes = encoder.is_encoder = true;
  encoder.source.reset();
  return encoder;
}

}  // namespace ferry::converters
