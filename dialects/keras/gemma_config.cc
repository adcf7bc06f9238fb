// Translates the classes of Gemma 1 and 2, and of Gemma 3.
#include <fmt/format.h>

#include "converters/config/json_fields.h"
#include "dialects/keras/backbones.h"

namespace ferry::converters {
namespace {

constexpr FloatRange kCapRange = {1e-3, 1e6};

// KerasHub fixes these in the code of Gemma 1, 2 and 3.
constexpr double kGemmaTheta = 10000.0;
constexpr double kGemma3GlobalTheta = 1000000.0;

constexpr bool no_layer(int64_t) { return false; }
// The last layer of every two, or of every six, has full attention.
constexpr bool all_but_second(int64_t layer) { return layer % 2 != 1; }
constexpr bool all_but_sixth(int64_t layer) { return layer % 6 != 5; }

// The head is always the embedding, and the activation is always GELU.
Result<KerasJson> gemma_common(const JsonFields& config, const char* model_type) {
  KerasJson out = FERRY_TRY(keras_sizes(config, model_type, {.head_dim = KerasHeadDim::kStated}));
  out["hidden_activation"] = "gelu_pytorch_tanh";
  out["tie_word_embeddings"] = true;
  return out;
}

Result<KerasJson> gemma_soft_cap(const JsonFields& config, std::string_view key) {
  const auto cap = FERRY_TRY(config.number(key, kCapRange));
  return cap ? KerasJson(*cap) : KerasJson(nullptr);
}

// Sets the soft caps and the scale of the queries. Gemma 1 has neither.
Status set_gemma_attention(KerasJson& out, const JsonFields& config) {
  const bool by_head = FERRY_TRY(config.flag_or("query_head_dim_normalize", true));
  const int64_t share =
      out["hidden_size"].get<int64_t>() / out["num_attention_heads"].get<int64_t>();
  if (!by_head && share < 1) {
    return config.bad("num_query_heads", "is above hidden_dim, which scales the queries");
  }
  out["query_pre_attn_scalar"] = by_head ? out["head_dim"] : KerasJson(share);
  out["attn_logit_softcapping"] = FERRY_TRY(gemma_soft_cap(config, "attention_logit_soft_cap"));
  out["final_logit_softcapping"] = FERRY_TRY(gemma_soft_cap(config, "final_logit_soft_cap"));
  return {};
}

Status set_gemma_window(KerasJson& out, const JsonFields& config, bool (*slides)(int64_t),
                        int64_t default_size) {
  const bool used = FERRY_TRY(config.flag_or("use_sliding_window_attention", false));
  const auto size = FERRY_TRY(config.integer("sliding_window_size", kPositionRange));
  out["sliding_window"] = size.value_or(default_size);
  out["layer_types"] = keras_layer_types(out, used ? slides : no_layer);
  return {};
}

Status refuse_options_of_gemma2(const JsonFields& config) {
  for (const char* key : {"attention_logit_soft_cap", "final_logit_soft_cap"}) {
    if (config.find(key) != nullptr) return unsupported_keras(config, key, "is set in a Gemma 1");
  }
  if (FERRY_TRY(config.flag_or("use_sliding_window_attention", false))) {
    return unsupported_keras(config, "use_sliding_window_attention", "is true in a Gemma 1");
  }
  if (FERRY_TRY(config.flag_or("query_head_dim_normalize", true))) return {};
  return unsupported_keras(config, "query_head_dim_normalize", "is false in a Gemma 1");
}

// Translates the class of Gemma 1 and 2. A model with norms after attention and MLP is a Gemma 2.
Result<KerasJson> keras_gemma(const JsonFields& config, bool) {
  const bool second = FERRY_TRY(config.flag_or("use_post_ffw_norm", false));
  if (FERRY_TRY(config.flag_or("use_post_attention_norm", false)) != second) {
    return unsupported_keras(config, "use_post_attention_norm",
                             "differs from use_post_ffw_norm: neither Gemma 1 nor Gemma 2");
  }
  KerasJson out = FERRY_TRY(gemma_common(config, second ? "gemma2" : "gemma"));
  const auto doubled = out["intermediate_size"].get<int64_t>();
  if (doubled % 2 != 0) {
    return config.bad("intermediate_dim",
                      fmt::format("is {}, which must be twice the width of the MLP", doubled));
  }
  out["intermediate_size"] = doubled / 2;
  out["rope_theta"] = kGemmaTheta;
  if (!second) {
    FERRY_RETURN_IF_ERROR(refuse_options_of_gemma2(config));
    return out;
  }
  FERRY_RETURN_IF_ERROR(set_gemma_attention(out, config));
  FERRY_RETURN_IF_ERROR(set_gemma_window(out, config, all_but_second, 4096));
  return out;
}

Status refuse_other_gemma3(const JsonFields& config) {
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
  if (FERRY_TRY(config.number_or("local_rope_scaling_factor", kFactorRange, 1.0)) == 1.0) return {};
  return unsupported_keras(config, "local_rope_scaling_factor", "is not 1");
}

Result<KerasJson> keras_gemma3(const JsonFields& config, bool) {
  FERRY_RETURN_IF_ERROR(refuse_other_gemma3(config));
  KerasJson out = FERRY_TRY(gemma_common(config, "gemma3_text"));
  out["rope_theta"] = kGemma3GlobalTheta;
  out["rope_local_base_freq"] = kGemmaTheta;
  out["rope_scaling"] = keras_linear_scaling(
      FERRY_TRY(config.number_or("global_rope_scaling_factor", kFactorRange, 1.0)));
  FERRY_RETURN_IF_ERROR(set_gemma_attention(out, config));
  FERRY_RETURN_IF_ERROR(set_gemma_window(out, config, all_but_sixth, 1024));
  return out;
}

// The size of the window has no effect where no layer has one.
constexpr std::string_view kGemmaInert[] = {"sliding_window_size"};
// These keys are for the vision encoder and for embedding models.
constexpr std::string_view kGemma3Inert[] = {"image_size", "pooling_intermediate_dim",
                                             "embedding_dim"};
constexpr KerasBackbone kGemmaClasses[] = {{"GemmaBackbone", keras_gemma, kGemmaInert},
                                           {"Gemma3Backbone", keras_gemma3, kGemma3Inert}};

}  // namespace

std::span<const KerasBackbone> keras_gemmas() { return kGemmaClasses; }

}  // namespace ferry::converters
