#include "converters/config/model_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "converters/config/config_parts.h"
#include "converters/config/version_rules.h"
#include "converters/family.h"
#include "core/json.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

Status read_sizes(const JsonFields& fields, const ModelType& type, ModelConfig& config) {
  config.vocab_size = FERRY_TRY(fields.required("vocab_size", kSizeRange));
  config.hidden_size = FERRY_TRY(fields.required("hidden_size", kSizeRange));
  if (type.mlp_ratio > 0) {
    config.intermediate_size = FERRY_TRY(
        fields.integer_or("intermediate_size", kSizeRange, type.mlp_ratio * config.hidden_size));
  } else if (type.experts != ExpertRule::kAll) {
    config.intermediate_size =
        FERRY_TRY(required_of_layers(fields, "intermediate_size", kSizeRange));
  }
  config.num_layers = FERRY_TRY(fields.required("num_hidden_layers", kLayerRange));
  config.num_heads = FERRY_TRY(fields.required("num_attention_heads", kHeadRange));
  config.num_kv_heads =
      FERRY_TRY(fields.integer_or("num_key_value_heads", kHeadRange, config.num_heads));
  config.max_positions = FERRY_TRY(fields.required("max_position_embeddings", kPositionRange));
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

Status check_q_size(const JsonFields& fields, const ModelConfig& config, int64_t head_dim) {
  if (config.num_heads * head_dim <= kSizeRange.max) return {};
  return fields.bad("num_attention_heads",
                    fmt::format("is {}: too many for heads of {}", config.num_heads, head_dim));
}

// The statements of a config about the direction of attention.
struct Directions {
  bool not_causal = false;   // is_causal is not true
  bool half_window = false;  // use_bidirectional_attention
};

// transformers reads is_causal in every decoder. Any value but true, null included, disables the
// causal mask.
Result<Directions> read_directions(const JsonFields& fields, const ModelType& type) {
  Directions out;
  if (only_encodes(type.two_way)) return out;
  const nlohmann::json* causal = fields.find("is_causal");
  out.not_causal = fields.states("is_causal") && (causal == nullptr || *causal != true);
  if (type.two_way == TwoWayRule::kUnread) return out;
  out.half_window = FERRY_TRY(asks_both_ways(fields, type));
  if (type.two_way == TwoWayRule::kNamed && fields.states("is_causal")) {
    // Saved configs state the direction that the other key determines. Where the two differ, so do
    // kernels of the reference.
    if (out.not_causal != out.half_window) {
      return fields.error(ErrorCode::kUnsupported, "is_causal",
                          "is not what use_bidirectional_attention says");
    }
    out.not_causal = false;
  }
  if (out.half_window && type.two_way == TwoWayRule::kRefused) {
    return fields.error(ErrorCode::kUnsupported, "use_bidirectional_attention",
                        "is true: not supported");
  }
  return out;
}

// Refuses attention in both directions for a model whose decoder must be causal.
Status refuse_two_way_attention(const JsonFields& fields, const ModelType& type) {
  const Directions directions = FERRY_TRY(read_directions(fields, type));
  if (!directions.not_causal && !directions.half_window) return {};
  return fields.error(
      ErrorCode::kUnsupported, directions.not_causal ? "is_causal" : "use_bidirectional_attention",
      directions.not_causal ? "is not true: attention in both directions is not supported"
                            : "is true: not supported");
}

// Needs the layer types and the window. A window in both directions differs by key in the
// reference. With is_causal, it has as many tokens on each side as the config states; with
// use_bidirectional_attention, it has half as many.
Status read_two_way(const JsonFields& fields, const ModelType& type, ModelConfig& config) {
  config.only_encodes = only_encodes(type.two_way);
  if (config.multimodal && !config.only_encodes) return refuse_two_way_attention(fields, type);
  const Directions directions = FERRY_TRY(read_directions(fields, type));
  config.two_way = config.only_encodes || directions.not_causal || directions.half_window;
  config.is_encoder = config.two_way;
  if (config.two_way && std::ranges::any_of(config.layer_types, has_state)) {
    return fields.error(ErrorCode::kUnsupported, "is_causal",
                        "is not true, and layers without attention know one direction only");
  }
  if (!config.sliding_window) return {};
  const bool whole = directions.not_causal || type.two_way == TwoWayRule::kRadius;
  const bool half = directions.half_window || type.two_way == TwoWayRule::kAlways;
  if (half) config.sliding_window = *config.sliding_window / 2 + 1;
  if (whole) config.sliding_window = *config.sliding_window + 1;
  return {};
}

Status read_layer_details(const JsonFields& fields, const ModelType& type, ModelConfig& config) {
  config.rms_norm_eps = FERRY_TRY(fields.number_or("rms_norm_eps", kEpsRange, 1e-6));
  if (!type.activation_key.empty()) {
    config.activation = FERRY_TRY(read_activation(fields, type.activation_key, "silu"));
  }
  config.attention_bias =
      type.qkv_bias || (type.attention_bias && FERRY_TRY(fields.flag_or("attention_bias", false)));
  config.mlp_bias = type.mlp_bias && FERRY_TRY(fields.flag_or("mlp_bias", false));
  return {};
}

// Checks the sizes of attention in the layers of one type.
Status check_heads(const JsonFields& fields, const ModelConfig& config, LayerType type) {
  const HeadSizes sizes = config.heads_of(type);
  FERRY_RETURN_IF_ERROR(check_q_size(fields, config, sizes.dim));
  if (config.num_heads % sizes.kv_heads != 0) {
    return fields.bad("num_key_value_heads", fmt::format("is {}, which does not divide {} heads",
                                                         sizes.kv_heads, config.num_heads));
  }
  if (!config.has_rope()) return {};
  const int64_t rotary = config.rotary_dim(type);
  if (rotary >= 2 && rotary % 2 == 0) return {};
  // The reference rounds an odd part of a head up, and fails if the whole head is odd.
  const bool part = rotary < sizes.dim;
  return fields.error(part ? ErrorCode::kUnsupported : ErrorCode::kBadInput, "head_dim",
                      fmt::format("is {}: RoPE would rotate {} dimensions of it, which is not a "
                                  "positive even number",
                                  sizes.dim, rotary));
}

// Checks the sizes of attention, if any layer has it.
Status check_heads(const JsonFields& fields, const ModelConfig& config) {
  for (const LayerType type :
       {LayerType::kFullAttention, LayerType::kSlidingAttention, LayerType::kMambaAndAttention}) {
    if (std::ranges::count(config.layer_types, type) == 0) continue;
    FERRY_RETURN_IF_ERROR(check_heads(fields, config, type));
  }
  return {};
}

Result<nlohmann::json> parse_object(const std::string& text, const std::string& name) {
  nlohmann::json document = FERRY_TRY(parse_json(text, name));
  if (!document.is_object()) return bad_input(name + ": not a JSON object");
  return document;
}

// Quantised checkpoints pack several elements into one, which a plain reading would get wrong.
Status refuse_quantization(const JsonFields& fields, bool ternary = false) {
  for (const std::string_view key : {"quantization_config", "compression_config"}) {
    if (!fields.find(key)) continue;
    const auto stated = FERRY_TRY(fields.object(key));
    if (ternary && FERRY_TRY(stated->text("quant_method")) == "bitnet") continue;
    return fields.error(ErrorCode::kUnsupported, key,
                        "is present: quantised checkpoints are not supported");
  }
  return {};
}

// With per_layer_config, single layers have keys of their own.
Status refuse_layer_overrides(const JsonFields& fields) {
  const nlohmann::json* stated = fields.find("per_layer_config");
  if (stated == nullptr || stated->empty()) return {};
  return fields.error(ErrorCode::kUnsupported, "per_layer_config",
                      "is present: layers with keys of their own are not supported");
}

// A longer model_type is cut in messages, because the list of types behind it makes the line long
// enough.
constexpr size_t kShownType = 40;

// Finds the family of the outer model_type. The type of the text decoder follows from the outer
// one, whatever its own config says.
Result<FamilyMatch> match_family(const JsonFields& outer, const std::string& model_type,
                                 FamilyTable families) {
  const auto text_config = FERRY_TRY(outer.object("text_config"));
  const bool has_text_part = text_config.has_value();
  std::optional<std::string> text_type;
  if (has_text_part) text_type = FERRY_TRY(text_config->text("model_type"));
  const std::optional<FamilyMatch> match =
      find_family(families, model_type, text_type.value_or(""));
  if (!match || (has_text_part && !match->multimodal)) {
    return outer.error(
        ErrorCode::kUnsupported, "model_type",
        fmt::format("is {}: not supported; supported are {}", quoted(model_type, kShownType),
                    nearest_types(families, model_type)));
  }
  if (match->multimodal && !has_text_part && !match->type->wrapper.flat) {
    return outer.bad("text_config", "is missing");
  }
  return *match;
}

// Puts the keys of the config itself that belong to the part among the defaults of the part, which
// cannot state them.
Status take_outer_keys(const JsonFields& outer, const ConfigPart& part, nlohmann::json& defaults,
                       std::vector<KeyNames>& names) {
  for (const std::string_view key : part.outer) {
    FERRY_TRY(outer.integer(key, {0, kSizeRange.max}));
    const nlohmann::json* stated = outer.find(key);
    if (outer.states(key)) defaults[key] = stated == nullptr ? nlohmann::json() : *stated;
    names.push_back({key, {}});
  }
  return {};
}

// Returns the part of the config that describes the text decoder: text_config of a multimodal
// config, else the outer config itself or its part for the layers.
Result<JsonFields> text_part(const JsonFields& outer, const FamilyMatch& match) {
  if (!match.type->part.key.empty()) return layer_part(outer, match.type->part);
  if (!match.multimodal) return outer;
  const auto text_config = FERRY_TRY(outer.object("text_config"));
  if (!text_config) return outer;
  const JsonFields& inside = *text_config;
  const ModelType& type = *match.type;
  const auto stated = FERRY_TRY(inside.text("model_type"));
  if (stated && *stated != type.wrapper.name && *stated != type.name) {
    return inside.error(ErrorCode::kUnsupported, "model_type",
                        fmt::format("is {}: the text part of {} is {}", quoted(*stated),
                                    type.wrapper.name, type.name));
  }
  return inside;
}

// Whether the head is tied in a multimodal config. tie_word_embeddings of the text part has no
// effect.
Result<bool> read_tie(const JsonFields& outer, bool otherwise) {
  const bool stated = outer.states("tie_word_embeddings");
  return FERRY_TRY(outer.flag("tie_word_embeddings")).value_or(!stated && otherwise);
}

// In some types tie_word_embeddings of the text part counts too.
Result<bool> read_tie(const JsonFields& outer, const JsonFields& text, const WrapperType& wrapper) {
  const bool tied = wrapper.outer_ties && FERRY_TRY(read_tie(outer, wrapper.tied));
  if (tied || !wrapper.text_ties) return tied;
  return text.flag_or("tie_word_embeddings", false);
}

// The part of a config that describes the text decoder, and the family that serves it.
struct TextPart {
  JsonFields fields;
  FamilyMatch match;
};

Result<TextPart> own_text_part(const JsonFields& outer, const std::string& model_type,
                               FamilyTable families) {
  const FamilyMatch match = FERRY_TRY(match_family(outer, model_type, families));
  return TextPart{FERRY_TRY(text_part(outer, match)), match};
}

Result<TextPart> text_part_of(const JsonFields& outer, const VisionMatch& vision,
                              FamilyTable families) {
  const std::string_view key = vision.type->text_key;
  auto inside = FERRY_TRY(outer.object(key));
  if (!inside && !vision.type->flat) return outer.bad(key, "is missing");
  std::string type(vision.type->text_type);
  if (inside) type = FERRY_TRY(inside->text("model_type")).value_or(type);
  // Older configs name the whole model there.
  if (type == vision.type->name) type = vision.type->text_type;
  if (!inside) inside = outer;
  const auto match = find_family(families, type);
  // A model whose images have places in three dimensions has one type of text decoder.
  std::vector<std::string_view> known = vision.family->text_types;
  if (vision.type->sections != nullptr) known = {vision.type->text_type};
  if (!match || match->multimodal || std::ranges::count(known, type) == 0) {
    return inside->error(
        ErrorCode::kUnsupported, "model_type",
        fmt::format("is {}: not supported in {}; supported are {}", quoted(type, kShownType),
                    vision.type->name, fmt::join(known, ", ")));
  }
  return TextPart{*inside, *match};
}

// Reads the sizes of the vision tower, which need those of the text decoder.
Status read_vision_part(const JsonFields& outer, const VisionMatch& match, ModelConfig& config) {
  auto vision = FERRY_TRY(outer.object("vision_config"));
  if (!vision) return outer.bad("vision_config", "is missing");
  const nlohmann::json vision_defaults =
      nlohmann::json::parse(FERRY_TRY(tower_of(*vision, *match.type)).defaults);
  vision->set_defaults(vision_defaults);
  FERRY_RETURN_IF_ERROR(refuse_quantization(*vision));
  FERRY_RETURN_IF_ERROR(read_vision(outer, *vision, match, config.vision.emplace()));
  if (config.vision->two_way_in_windows && !config.sliding_window) {
    config.vision->two_way_images = config.vision->two_way_in_windows = false;
  }
  const std::optional<AnyShapeConfig>& any_shape = config.vision->any_shape;
  if (any_shape && any_shape->output_size > 0 && any_shape->output_size != config.hidden_size) {
    return outer.bad("vision_config",
                     fmt::format("gives features of {}, the text decoder is {} wide",
                                 any_shape->output_size, config.hidden_size));
  }
  const int64_t width = config.vision->connector_size;
  if (config.vision->connector == Connector::kLinear && width > 0 && width != config.hidden_size) {
    return outer.bad("projection_dim",
                     fmt::format("is {}, the text decoder is {} wide", width, config.hidden_size));
  }
  const std::optional<int64_t>& placeholder = config.vision->image_token_id;
  if (!placeholder || *placeholder < config.vocab_size) return {};
  return outer.bad("image_token_id", fmt::format("is {}, the vocabulary has {} entries",
                                                 *placeholder, config.vocab_size));
}

// Returns what the model takes beside text: what is asked for, where that is a choice.
Inputs inputs_of(const VisionType& type, Inputs asked) {
  const bool all = !type.by_choice;
  return {.images = type.read != nullptr && (all || asked.images),
          .sounds = type.read_sound != nullptr && (all || asked.sounds)};
}

// Reads the encoders of `inputs`, whose output becomes rows of the text decoder.
Status read_encoders(JsonFields outer, const VisionMatch& match, Inputs inputs,
                     ModelConfig& config) {
  const nlohmann::json defaults = nlohmann::json::parse(match.type->defaults);
  outer.set_defaults(defaults);
  config.vision_family = match.family;
  if (inputs.images) FERRY_RETURN_IF_ERROR(read_vision_part(outer, match, config));
  if (match.type->read_rows != nullptr) FERRY_RETURN_IF_ERROR(match.type->read_rows(outer, config));
  if (!inputs.sounds) return {};
  FERRY_RETURN_IF_ERROR(match.type->read_sound(outer, config));
  if (!config.audio || config.audio->to_rows->token_id < config.vocab_size) return {};
  return outer.bad("audio_token_id",
                   fmt::format("is {}, the vocabulary has {} entries",
                               config.audio->to_rows->token_id, config.vocab_size));
}

// Whether the head is tied: the outer config says so, else what its class or the text part says.
Result<bool> read_tie(JsonFields outer, const JsonFields& text, const VisionType& type) {
  if (!type.names.empty()) outer.set_names(type.names);
  if (type.never_ties) return false;
  if (type.tied) {
    return read_tie(outer, text, WrapperType{.tied = *type.tied, .text_ties = type.text_ties});
  }
  return read_tie(outer, FERRY_TRY(text.flag_or("tie_word_embeddings", false)));
}

}  // namespace

// Some configs state -1 for "none". Negative ids are ignored.
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

Status read_text_part(const JsonFields& fields, const ModelType& type, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(refuse_quantization(fields, type.ternary));
  if (fields.find("quantization_config") != nullptr) config.numbers[kRoundedInputs] = 1;
  if (type.read_layers == nullptr) FERRY_RETURN_IF_ERROR(refuse_layer_overrides(fields));
  FERRY_RETURN_IF_ERROR(read_sizes(fields, type, config));
  FERRY_RETURN_IF_ERROR(read_layer_details(fields, type, config));
  FERRY_RETURN_IF_ERROR(read_experts(fields, type, config));
  FERRY_RETURN_IF_ERROR(check_q_size(fields, config, config.head_dim));
  for (const FlagKey& flag : type.flags) {
    const std::string name(flag.number != nullptr ? flag.number : flag.key);
    config.numbers[name] = FERRY_TRY(fields.flag_or(flag.key, flag.otherwise)) ? 1 : 0;
  }
  for (const std::string_view key : type.sizes) {
    // The table of token types has rows. Other sizes may be null, which stands for another member.
    config.numbers[std::string(key)] = key == kTokenTypes
                                           ? FERRY_TRY(fields.required(key, kSizeRange))
                                           : FERRY_TRY(fields.integer(key, kSizeRange)).value_or(0);
  }
  if (type.read != nullptr) FERRY_RETURN_IF_ERROR(type.read(fields, config));
  FERRY_RETURN_IF_ERROR(read_layer_types(fields, type, config));
  if (type.read_layers != nullptr) FERRY_RETURN_IF_ERROR(type.read_layers(fields, config));
  FERRY_RETURN_IF_ERROR(read_two_way(fields, type, config));
  FERRY_RETURN_IF_ERROR(read_rope(fields, type, config));
  FERRY_RETURN_IF_ERROR(check_heads(fields, config));
  FERRY_RETURN_IF_ERROR(read_classifier(fields, config));
  return read_token_ids(fields, config);
}

Result<int64_t> required_of_layers(const JsonFields& fields, std::string_view key, IntRange range) {
  const nlohmann::json* stated = fields.find(key);
  if (stated == nullptr || !stated->is_array()) return fields.required(key, range);
  const auto sizes = FERRY_TRY(fields.integers(key, range));
  if (!sizes || sizes->empty()) return fields.bad(key, "is an empty list");
  if (std::ranges::adjacent_find(*sizes, std::ranges::not_equal_to()) == sizes->end()) {
    return sizes->front();
  }
  return fields.error(ErrorCode::kUnsupported, key, "differs from layer to layer: not supported");
}

// Maps the names in transformers' activations.py to the operators that compute them.
Result<Activation> activation_named(const JsonFields& fields, std::string_view key,
                                    std::string_view name) {
  constexpr std::pair<std::string_view, Activation> kNames[] = {
      {"silu", Activation::kSilu},
      {"swish", Activation::kSilu},
      {"gelu", Activation::kGelu},
      {"gelu_python", Activation::kGelu},
      {"gelu_pytorch_tanh", Activation::kGeluTanh},
      {"gelu_python_tanh", Activation::kGeluTanh},
      {"gelu_new", Activation::kGeluTanh},
      {"gelu_fast", Activation::kGeluTanh},
      {"gelu_accurate", Activation::kGeluTanh},
      {"relu", Activation::kRelu},
      {"relu2", Activation::kRelu2},
      {"quick_gelu", Activation::kQuickGelu},
  };
  for (const auto& [known, activation] : kNames) {
    if (known == name) return activation;
  }
  return fields.error(
      ErrorCode::kUnsupported, key,
      fmt::format("is {}; silu, gelu, gelu_pytorch_tanh, relu, relu2 and quick_gelu are supported",
                  quoted(name)));
}

Result<Activation> read_activation(const JsonFields& fields, std::string_view key,
                                   std::string_view otherwise) {
  const std::string name = FERRY_TRY(fields.text(key)).value_or(std::string(otherwise));
  return activation_named(fields, key, name);
}

int64_t ModelConfig::rotary_dim(LayerType type) const {
  const RopeConfig& of_type = type == LayerType::kSlidingAttention ? sliding_rope : rope;
  const int64_t head = heads_of(type).dim;
  if (of_type.rotary_dim > 0) return of_type.rotary_dim;
  if (of_type.type == RopeConfig::Type::kProportional) return head;
  return static_cast<int64_t>(static_cast<double>(head) * of_type.partial_rotary_factor);
}

bool ModelConfig::has_rope() const { return std::ranges::count(rope_layers, true) > 0; }

int64_t ModelConfig::number(std::string_view name) const {
  const auto found = numbers.find(name);
  return found == numbers.end() ? 0 : found->second;
}

Result<ModelConfig> parse_model_config(const std::string& config_json,
                                       const std::string& generation_json, const std::string& name,
                                       ConfigReport* report, FamilyTable families, Inputs inputs) {
  const nlohmann::json document = FERRY_TRY(parse_object(config_json, name));
  KeyLog log;
  JsonFields outer(document, name, "");
  outer.record_in(log);
  const auto model_type = FERRY_TRY(outer.text("model_type"));
  if (!model_type) return outer.bad("model_type", "is missing");
  std::optional<VisionMatch> vision = find_vision_family(*model_type);
  if (vision) inputs = inputs_of(*vision->type, inputs);
  if (vision && inputs.are_text()) vision.reset();
  const TextPart part = FERRY_TRY(vision ? text_part_of(outer, *vision, families)
                                         : own_text_part(outer, *model_type, families));
  const FamilyMatch& match = part.match;
  const ModelType& type = *match.type;
  JsonFields text = part.fields;
  nlohmann::json defaults = nlohmann::json::parse(type.defaults);
  std::vector<KeyNames> names = type.names;
  if (vision) defaults.update(nlohmann::json::parse(vision->type->text_defaults));
  FERRY_RETURN_IF_ERROR(take_outer_keys(outer, type.part, defaults, names));
  text.set_defaults(defaults);
  for (const std::string_view key : type.unread) names.push_back({key, {}});
  if (vision && vision->type->gives_masks) names.push_back({"use_bidirectional_attention", {}});
  text.set_names(names);

  ModelConfig config;
  config.family = match.family;
  config.model_type = *model_type;
  config.text_type = type.name;
  config.multimodal = match.multimodal || vision;
  FERRY_RETURN_IF_ERROR(refuse_quantization(outer, type.ternary && !config.multimodal));
  if (config.multimodal) FERRY_RETURN_IF_ERROR(refuse_two_way_attention(outer, type));
  FERRY_RETURN_IF_ERROR(read_token_ids(outer, config));
  FERRY_RETURN_IF_ERROR(read_text_part(text, type, config));
  const bool in_parts = !type.source_part.key.empty();
  if (in_parts) FERRY_RETURN_IF_ERROR(read_source_part(outer, type, config));
  config.tie_word_embeddings = FERRY_TRY(vision             ? read_tie(outer, text, *vision->type)
                                         : match.multimodal ? read_tie(outer, text, type.wrapper)
                                         : in_parts         ? read_tie(outer, true)
                                                    : text.flag_or("tie_word_embeddings", false));
  const JsonFields& settling = match.multimodal && type.wrapper.outer_ties ? outer : text;
  config.tie_unless_stored = !vision && config.tie_word_embeddings &&
                             (in_parts || !settling.states("tie_word_embeddings"));
  if (vision) FERRY_RETURN_IF_ERROR(read_encoders(outer, *vision, inputs, config));
  if (vision) {
    config.rope.first_position = config.sliding_rope.first_position = vision->type->first_position;
    if (vision->type->plain_head) config.scalars.logits = 1.0;
  }
  if (vision && vision->type->sections != nullptr) {
    FERRY_RETURN_IF_ERROR(read_rope_axes(text, *vision->type->sections, config));
  }
  if (report != nullptr) {
    report->unused_keys = unused_keys(document, "", log, is_inert_key);
    report->version_readings = version_readings(outer, text, config);
  }

  if (config.source) FERRY_RETURN_IF_ERROR(read_start({&outer, &text}, config));
  if (!generation_json.empty()) {
    const std::string generation_name = name + " (generation_config.json)";
    const nlohmann::json generation = FERRY_TRY(parse_object(generation_json, generation_name));
    const JsonFields stated(generation, generation_name, "");
    FERRY_RETURN_IF_ERROR(read_token_ids(stated, config));
    if (config.source) FERRY_RETURN_IF_ERROR(read_start({&stated}, config));
  }
  return config;
}

}  // namespace ferry::converters
