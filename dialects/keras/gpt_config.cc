// Translates the classes of GPT-2, OPT and GPT-NeoX. KerasHub fixes epsilon, activation, biases and
// the tied head in its code, except the epsilon of GPT-NeoX.
#include "converters/config/json_fields.h"
#include "dialects/keras/backbones.h"

namespace ferry::converters {
namespace {

constexpr double kGptEpsilon = 1e-5;

// The learned positions are a table of max_sequence_length rows.
Result<int64_t> table_rows(const JsonFields& config, int64_t otherwise) {
  return config.integer_or("max_sequence_length", kPositionRange, otherwise);
}

// Reads the sizes under the names that OPT and GPT-NeoX share.
Result<KerasJson> gpt_sizes(const JsonFields& config, const char* model_type) {
  KerasJson out = {{"model_type", model_type}};
  out["vocab_size"] = FERRY_TRY(config.required("vocabulary_size", kSizeRange));
  out["hidden_size"] = FERRY_TRY(config.required("hidden_dim", kSizeRange));
  out["num_hidden_layers"] = FERRY_TRY(config.required("num_layers", kLayerRange));
  out["num_attention_heads"] = FERRY_TRY(keras_even_heads(config, "num_heads"));
  out["tie_word_embeddings"] = true;
  return out;
}

Result<KerasJson> keras_gpt2(const JsonFields& config, bool) {
  KerasJson out = {{"model_type", "gpt2"}};
  out["vocab_size"] = FERRY_TRY(config.required("vocabulary_size", kSizeRange));
  out["n_embd"] = FERRY_TRY(config.required("hidden_dim", kSizeRange));
  out["n_inner"] = FERRY_TRY(config.required("intermediate_dim", kSizeRange));
  out["n_layer"] = FERRY_TRY(config.required("num_layers", kLayerRange));
  out["n_head"] = FERRY_TRY(keras_even_heads(config, "num_heads"));
  out["n_positions"] = FERRY_TRY(table_rows(config, 1024));
  out["activation_function"] = "gelu_new";
  out["layer_norm_epsilon"] = kGptEpsilon;
  out["tie_word_embeddings"] = true;
  return out;
}

Result<KerasJson> keras_opt(const JsonFields& config, bool) {
  KerasJson out = FERRY_TRY(gpt_sizes(config, "opt"));
  out["ffn_dim"] = FERRY_TRY(config.required("intermediate_dim", kSizeRange));
  out["max_position_embeddings"] = FERRY_TRY(table_rows(config, 2048));
  out["word_embed_proj_dim"] = out["hidden_size"];
  out["activation_function"] = "relu";
  out["do_layer_norm_before"] = true;
  out["enable_bias"] = true;
  return out;
}

// KerasHub computes the tanh form of GELU and uses the embedding as the head. The released models
// have the exact form of GELU and a head of their own.
Result<KerasJson> keras_gpt_neox(const JsonFields& config, bool) {
  KerasJson out = FERRY_TRY(gpt_sizes(config, "gpt_neox"));
  out["intermediate_size"] = FERRY_TRY(config.required("intermediate_dim", kSizeRange));
  out["max_position_embeddings"] = FERRY_TRY(table_rows(config, 512));
  out["rotary_pct"] = FERRY_TRY(config.number_or("rotary_percentage", kPartialRange, 0.25));
  out["rotary_emb_base"] =
      FERRY_TRY(config.number_or("rotary_max_wavelength", kThetaRange, 10000.0));
  out["layer_norm_eps"] = FERRY_TRY(config.number_or("layer_norm_epsilon", kEpsRange, kGptEpsilon));
  out["hidden_act"] = "gelu_new";
  out["use_parallel_residual"] = true;
  out["attention_bias"] = true;
  return out;
}

constexpr KerasBackbone kGptClasses[] = {
    {"GPT2Backbone", keras_gpt2}, {"OPTBackbone", keras_opt}, {"GPTNeoXBackbone", keras_gpt_neox}};

}  // namespace

std::span<const KerasBackbone> keras_gpts() { return kGptClasses; }

}  // namespace ferry::converters
