#include "converters/adapters/keras/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "converters/config/json_fields.h"
#include "converters/config/ranges.h"
#include "core/json.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

using Json = nlohmann::ordered_json;

// Keras states no number of positions: RoPE has no end. This stands for it, and --context-length
// chooses.
constexpr int64_t kUnstatedPositions = 131072;

constexpr FloatRange kCapRange = {1e-3, 1e6};

// Fixed in the code of Gemma 1, 2 and 3.
constexpr double kGemmaTheta = 10000.0;
constexpr double kGemma3GlobalTheta = 1000000.0;
constexpr int64_t kGemma3Pattern = 6;  // the last of so many layers is global

// -- one backbone

tl::unexpected<Error> unsupported_keras(const JsonFields& config, std::string_view key,
                                        std::string_view what) {
  return config.error(ErrorCode::kUnsupported, key, what);
}

// What all backbones have. FERRY_TRY stays out of braced lists: what they have made before an error
// returns is not destroyed. `head_dim` is a key of its own but in Llama and Qwen 2.
Result<Json> common(const JsonFields& config, const char* model_type, bool has_head_dim) {
  const int64_t hidden = FERRY_TRY(config.required("hidden_dim", kSizeRange));
  const int64_t heads = FERRY_TRY(config.required("num_query_heads", kHeadRange));
  const int64_t kv_heads = FERRY_TRY(config.required("num_key_value_heads", kHeadRange));
  if (heads % kv_heads != 0) {
    return config.bad("num_key_value_heads",
                      fmt::format("is {}, which does not divide {} heads", kv_heads, heads));
  }
  if (!has_head_dim && hidden % heads != 0) {
    return config.bad("num_query_heads",
                      fmt::format("is {}, which does not divide hidden_dim {}", heads, hidden));
  }
  Json out = {{"model_type", model_type}};
  out["vocab_size"] = FERRY_TRY(config.required("vocabulary_size", kSizeRange));
  out["hidden_size"] = hidden;
  out["intermediate_size"] = FERRY_TRY(config.required("intermediate_dim", kSizeRange));
  out["num_hidden_layers"] = FERRY_TRY(config.required("num_layers", kLayerRange));
  out["num_attention_heads"] = heads;
  out["num_key_value_heads"] = kv_heads;
  out["head_dim"] = hidden / heads;
  if (has_head_dim) out["head_dim"] = FERRY_TRY(config.required("head_dim", kHeadDimRange));
  out["max_position_embeddings"] = kUnstatedPositions;
  out["rms_norm_eps"] = FERRY_TRY(config.number_or("layer_norm_epsilon", kEpsRange, 1e-6));
  return out;
}

// Null where nothing is scaled.
Json linear_scaling(double factor) {
  if (factor == 1.0) return nullptr;
  return {{"rope_type", "linear"}, {"factor", factor}};
}

// The four numbers of Llama 3.1's frequency scaling are all there, or none of them.
Result<Json> llama_scaling(const JsonFields& config) {
  const char* position_key = config.find("rope_position_scaling_factor") != nullptr
                                 ? "rope_position_scaling_factor"
                                 : "rope_scaling_factor";  // of KerasNLP
  const double position = FERRY_TRY(config.number_or(position_key, kFactorRange, 1.0));
  const char* keys[] = {"rope_frequency_adjustment_factor", "rope_low_freq_factor",
                        "rope_high_freq_factor", "rope_pretraining_sequence_length"};
  const auto present =
      std::ranges::count_if(keys, [&](const char* key) { return config.find(key) != nullptr; });
  if (present == 0) return linear_scaling(position);
  for (const char* key : keys) {
    if (config.find(key) == nullptr) return config.bad(key, "is missing beside the other three");
  }
  if (position != 1.0) {
    return unsupported_keras(config, position_key, "is set together with a frequency scaling");
  }
  Json out = {{"rope_type", "llama3"}};
  out["factor"] = *FERRY_TRY(config.number(keys[0], kFactorRange));
  out["low_freq_factor"] = *FERRY_TRY(config.number(keys[1], kFactorRange));
  out["high_freq_factor"] = *FERRY_TRY(config.number(keys[2], kFactorRange));
  out["original_max_position_embeddings"] = *FERRY_TRY(config.integer(keys[3], kPositionRange));
  return out;
}

Result<Json> llama(const JsonFields& config, bool own_head) {
  Json out = FERRY_TRY(common(config, "llama", /*has_head_dim=*/false));
  out["rope_theta"] = FERRY_TRY(config.number_or("rope_max_wavelength", kThetaRange, 10000.0));
  out["rope_scaling"] = FERRY_TRY(llama_scaling(config));
  out["tie_word_embeddings"] = FERRY_TRY(config.flag_or("tie_word_embeddings", !own_head));
  return out;
}

// Qwen 2 and 3: a window, where there is one, is that of every layer.
Result<Json> qwen(const JsonFields& config, const char* model_type, bool has_head_dim) {
  Json out = FERRY_TRY(common(config, model_type, has_head_dim));
  out["rope_theta"] = FERRY_TRY(config.number_or("rope_max_wavelength", kThetaRange, 10000.0));
  const double scaling = FERRY_TRY(config.number_or("rope_scaling_factor", kFactorRange, 1.0));
  out["rope_scaling"] = linear_scaling(scaling);
  out["tie_word_embeddings"] = FERRY_TRY(config.flag_or("tie_word_embeddings", true));
  return out;
}

void set_window(Json& out, std::optional<int64_t> window) {
  out["use_sliding_window"] = window.has_value();
  out["sliding_window"] = nullptr;
  out["max_window_layers"] = out["num_hidden_layers"];
  if (!window) return;
  out["sliding_window"] = *window;
  out["max_window_layers"] = 0;
}

Result<Json> qwen2(const JsonFields& config, bool) {
  Json out = FERRY_TRY(qwen(config, "qwen2", /*has_head_dim=*/false));
  std::optional<int64_t> window = FERRY_TRY(config.integer("sliding_window_size", kPositionRange));
  if (!FERRY_TRY(config.flag_or("use_sliding_window_attention", false))) {
    window = std::nullopt;
  } else if (!window) {
    window = 32768;
  }
  set_window(out, window);
  return out;
}

// The norms of q and k take 1e-5 in KerasHub, whatever the configuration says, because the decoder
// does not hand its epsilon on. The released weights were trained with the one number, which counts
// here for all norms.
Result<Json> qwen3(const JsonFields& config, bool) {
  Json out = FERRY_TRY(qwen(config, "qwen3", /*has_head_dim=*/true));
  set_window(out, FERRY_TRY(config.integer("sliding_window_size", kPositionRange)));
  return out;
}

// What Gemma 1, 2 and 3 share: the head is always the embedding, the activation is always GELU.
Result<Json> gemma_common(const JsonFields& config, const char* model_type) {
  Json out = FERRY_TRY(common(config, model_type, /*has_head_dim=*/true));
  out["hidden_activation"] = "gelu_pytorch_tanh";
  out["tie_word_embeddings"] = true;
  return out;
}

Result<Json> soft_cap(const JsonFields& config, std::string_view key) {
  const auto cap = FERRY_TRY(config.number(key, kCapRange));
  return cap ? Json(*cap) : Json(nullptr);
}

// Soft caps and the scale of the queries, which Gemma 1 does not have.
Status set_attention(Json& out, const JsonFields& config) {
  const bool by_head = FERRY_TRY(config.flag_or("query_head_dim_normalize", true));
  const int64_t share =
      out["hidden_size"].get<int64_t>() / out["num_attention_heads"].get<int64_t>();
  if (!by_head && share < 1) {
    return config.bad("num_query_heads", "is above hidden_dim, which scales the queries");
  }
  out["query_pre_attn_scalar"] = by_head ? out["head_dim"] : Json(share);
  out["attn_logit_softcapping"] = FERRY_TRY(soft_cap(config, "attention_logit_soft_cap"));
  out["final_logit_softcapping"] = FERRY_TRY(soft_cap(config, "final_logit_soft_cap"));
  return {};
}

// `pattern`: the last of so many layers sees everything, the others a window.
Status set_window_layers(Json& out, const JsonFields& config, int64_t pattern,
                         int64_t default_size) {
  const bool used = FERRY_TRY(config.flag_or("use_sliding_window_attention", false));
  const auto size = FERRY_TRY(config.integer("sliding_window_size", kPositionRange));
  out["sliding_window"] = size.value_or(default_size);
  Json types = Json::array();
  for (int64_t layer = 0; layer < out["num_hidden_layers"].get<int64_t>(); ++layer) {
    const bool window = used && layer % pattern != pattern - 1;
    types.push_back(window ? "sliding_attention" : "full_attention");
  }
  out["layer_types"] = std::move(types);
  return {};
}

// The class of Gemma 1 and 2: norms after attention and MLP make it a Gemma 2.
Result<Json> gemma(const JsonFields& config, bool) {
  const bool second = FERRY_TRY(config.flag_or("use_post_ffw_norm", false));
  if (FERRY_TRY(config.flag_or("use_post_attention_norm", false)) != second) {
    return unsupported_keras(config, "use_post_attention_norm",
                             "differs from use_post_ffw_norm: neither Gemma 1 nor Gemma 2");
  }
  Json out = FERRY_TRY(gemma_common(config, second ? "gemma2" : "gemma"));
  const auto doubled = out["intermediate_size"].get<int64_t>();
  if (doubled % 2 != 0) {
    return config.bad("intermediate_dim",
                      fmt::format("is {}, which must be twice the width of the MLP", doubled));
  }
  out["intermediate_size"] = doubled / 2;
  out["rope_theta"] = kGemmaTheta;
  if (second) {
    FERRY_RETURN_IF_ERROR(set_attention(out, config));
    FERRY_RETURN_IF_ERROR(set_window_layers(out, config, 2, 4096));
    return out;
  }
  for (const char* key : {"attention_logit_soft_cap", "final_logit_soft_cap"}) {
    if (config.find(key) != nullptr) return unsupported_keras(config, key, "is set in a Gemma 1");
  }
  if (FERRY_TRY(config.flag_or("use_sliding_window_attention", false))) {
    return unsupported_keras(config, "use_sliding_window_attention", "is true in a Gemma 1");
  }
  if (!FERRY_TRY(config.flag_or("query_head_dim_normalize", true))) {
    return unsupported_keras(config, "query_head_dim_normalize", "is false in a Gemma 1");
  }
  return out;
}

Result<Json> gemma3(const JsonFields& config, bool) {
  if (config.find("vision_encoder") != nullptr) {
    return unsupported_keras(config, "vision_encoder",
                             "is set: only text backbones of Gemma 3 are supported");
  }
  for (const char* key : {"use_bidirectional_attention", "is_embedding_model"}) {
    if (FERRY_TRY(config.flag_or(key, false))) return unsupported_keras(config, key, "is true");
  }
  if (!FERRY_TRY(config.flag_or("use_query_key_norm", true))) {
    return unsupported_keras(config, "use_query_key_norm", "is false");
  }
  for (const char* key : {"use_post_ffw_norm", "use_post_attention_norm"}) {
    if (!FERRY_TRY(config.flag_or(key, false))) {
      return unsupported_keras(config, key, "is not true");
    }
  }
  if (FERRY_TRY(config.number_or("local_rope_scaling_factor", kFactorRange, 1.0)) != 1.0) {
    return unsupported_keras(config, "local_rope_scaling_factor", "is not 1");
  }
  Json out = FERRY_TRY(gemma_common(config, "gemma3_text"));
  out["rope_theta"] = kGemma3GlobalTheta;
  out["rope_local_base_freq"] = kGemmaTheta;
  out["rope_scaling"] =
      linear_scaling(FERRY_TRY(config.number_or("global_rope_scaling_factor", kFactorRange, 1.0)));
  FERRY_RETURN_IF_ERROR(set_attention(out, config));
  FERRY_RETURN_IF_ERROR(set_window_layers(out, config, kGemma3Pattern, 1024));
  return out;
}

// -- the table of backbones

struct Backbone {
  std::string_view class_name;
  Result<Json> (*translate)(const JsonFields& config, bool own_head);
  std::vector<std::string_view> keys;  // that it knows, beside kSharedKeys
};

constexpr std::string_view kSharedKeys[] = {
    // No numbers of the model, or (dropout) without effect once it is trained.
    "name", "trainable", "dtype", "dropout",
    // Read by common().
    "vocabulary_size", "num_layers", "num_query_heads", "num_key_value_heads", "hidden_dim",
    "intermediate_dim", "layer_norm_epsilon"};

const std::vector<Backbone>& backbones() {
  const std::vector<std::string_view> llama_keys = {
      "rope_max_wavelength",  "rope_position_scaling_factor",     "rope_scaling_factor",
      "rope_low_freq_factor", "rope_frequency_adjustment_factor", "rope_high_freq_factor",
      "tie_word_embeddings",  "rope_pretraining_sequence_length"};
  static const std::vector<Backbone> table = {
      {"GemmaBackbone",
       gemma,
       {"head_dim", "query_head_dim_normalize", "use_post_ffw_norm", "use_post_attention_norm",
        "attention_logit_soft_cap", "final_logit_soft_cap", "use_sliding_window_attention",
        "sliding_window_size"}},
      {"Gemma3Backbone",
       gemma3,
       {"head_dim", "query_head_dim_normalize", "use_post_ffw_norm", "use_post_attention_norm",
        "attention_logit_soft_cap", "final_logit_soft_cap", "use_sliding_window_attention",
        "sliding_window_size", "image_size", "use_query_key_norm", "local_rope_scaling_factor",
        "global_rope_scaling_factor", "vision_encoder", "use_bidirectional_attention",
        "is_embedding_model", "pooling_intermediate_dim", "embedding_dim"}},
      {"LlamaBackbone", llama, llama_keys},
      {"Llama3Backbone", llama, llama_keys},
      {"QwenBackbone",
       qwen2,
       {"rope_max_wavelength", "rope_scaling_factor", "tie_word_embeddings",
        "use_sliding_window_attention", "sliding_window_size"}},
      {"Qwen3Backbone",
       qwen3,
       {"head_dim", "rope_max_wavelength", "rope_scaling_factor", "tie_word_embeddings",
        "sliding_window_size"}},
  };
  return table;
}

Result<const Backbone*> find_backbone(const JsonFields& outer) {
  const auto class_name = FERRY_TRY(outer.text("class_name"));
  if (!class_name) return outer.bad("class_name", "is missing");
  const std::string registered = FERRY_TRY(outer.text("registered_name")).value_or(*class_name);
  std::vector<std::string_view> known;
  for (const Backbone& backbone : backbones()) {
    known.push_back(backbone.class_name);
    if (*class_name != backbone.class_name) continue;
    // A class of the same name that somebody else registered is another model.
    for (const std::string_view package : {"", "keras_hub>", "keras_nlp>"}) {
      if (registered == std::string(package) + *class_name) return &backbone;
    }
    return unsupported_keras(outer, "registered_name",
                             fmt::format("is {}, not a class of KerasHub", quoted(registered)));
  }
  return unsupported_keras(outer, "class_name",
                           fmt::format("is {}, which is not supported; supported are {}",
                                       quoted(*class_name), fmt::join(known, ", ")));
}

// An option that is not known may change the output, unless it is off.
Status refuse_unknown_keys(const nlohmann::json& config, const Backbone& backbone,
                           const JsonFields& fields) {
  for (const auto& [key, value] : config.items()) {
    const bool known = std::ranges::find(kSharedKeys, key) != std::end(kSharedKeys) ||
                       std::ranges::find(backbone.keys, key) != backbone.keys.end();
    if (known || value.is_null() || value == false) continue;
    return unsupported_keras(
        fields, key,
        fmt::format("is not known for {}, and may change the output", backbone.class_name));
  }
  return {};
}

// Quantised policies are named "int8_from_float32" and the like, alone or in a map by layer.
Status refuse_keras_quantization(const JsonFields& config) {
  const nlohmann::json* dtype = config.find("dtype");
  if (dtype == nullptr) return {};
  const std::string text = dtype->dump();
  if (text.find("_from_") == std::string::npos && text.find("Quantized") == std::string::npos) {
    return {};
  }
  return unsupported_keras(config, "dtype", "is quantised: only float presets are supported");
}

}  // namespace

bool is_keras_config(const std::string& config_json) {
  const Result<nlohmann::json> document = parse_json(config_json, "config");
  return document && document->is_object() && !document->contains("model_type") &&
         document->contains("class_name") && document->contains("config");
}

Result<std::string> hugging_face_config_of_keras(const std::string& config_json, bool own_head,
                                                 const std::string& name) {
  const nlohmann::json document = FERRY_TRY(parse_json(config_json, name));
  if (!document.is_object()) return bad_input(name + ": not a JSON object");
  const JsonFields outer(document, name, "");
  const Backbone* backbone = FERRY_TRY(find_backbone(outer));
  const auto config = FERRY_TRY(outer.object("config"));
  if (!config) return outer.bad("config", "is missing");
  FERRY_RETURN_IF_ERROR(refuse_keras_quantization(*config));
  FERRY_RETURN_IF_ERROR(refuse_unknown_keys(document["config"], *backbone, *config));
  return FERRY_TRY(backbone->translate(*config, own_head)).dump(2) + "\n";
}

}  // namespace ferry::converters
