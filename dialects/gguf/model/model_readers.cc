#include "dialects/gguf/model/model_readers.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numbers>

namespace ferry::converters {

using nlohmann::json;

// Files do not name the form of the decoder. Attention and MLP stand side by side in all of them.
Status read_gguf_falcon(GgufReading& in) {
  json& config = *in.config;
  const bool two = in.has("blk.{i}.attn_norm_2.weight");
  const json heads = config.value("num_attention_heads", json());
  const json of_keys = config.value("num_key_value_heads", json());
  const bool newer = two || (of_keys != 1 && of_keys != heads);
  config["new_decoder_architecture"] = newer;
  config["multi_query"] = !newer && of_keys == 1;
  config["num_ln_in_parallel_attn"] = two ? 2 : 1;
  config["parallel_attn"] = true;
  config["alibi"] = false;
  return {};
}

Status read_gguf_mpt(GgufReading& in) {
  constexpr double kLargest = 8;  // the reference has no other one
  json& config = *in.config;
  const char* key = "attention.max_alibi_bias";
  const double bias =
      FERRY_TRY(in.keys->fields.number_or(in.keys->name(key), {0, kGgufReals.max}, 0));
  if (bias != kLargest) return in.keys->unsupported(key, "is not 8");
  config["attn_config"] = {{"clip_qkv", config.value("clip_qkv", json())}};
  config.erase("clip_qkv");
  return {};
}

// Readers know the multipliers by heart.
Status read_gguf_minicpm3(GgufReading& in) {
  json& config = *in.config;
  FERRY_RETURN_IF_ERROR(in.take("attention.q_lora_rank", "q_lora_rank", kGgufSizes));
  FERRY_RETURN_IF_ERROR(in.take("attention.kv_lora_rank", "kv_lora_rank", kGgufSizes));
  FERRY_RETURN_IF_ERROR(in.take("attention.key_length", "qk_nope_head_dim", kGgufSizes));
  if (config.contains("qk_nope_head_dim")) {
    const int64_t plain = config["qk_nope_head_dim"].get<int64_t>() - in.head_dim;
    if (plain < 1) {
      return in.keys->fields.bad(in.keys->name("attention.key_length"),
                                 "leaves no dimension of a head without RoPE");
    }
    config["qk_nope_head_dim"] = plain;
  }
  const int64_t heads = std::max<int64_t>(1, config.value("num_attention_heads", int64_t{1}));
  const auto value = FERRY_TRY(in.integer("attention.value_length", kGgufSizes));
  config["v_head_dim"] = value.value_or(config.value("hidden_size", int64_t{1}) / heads);
  config["num_key_value_heads"] = heads;
  config["scale_emb"] = kMinicpm3Embedding;
  config["scale_depth"] = kMinicpm3Depth;
  config["dim_model_base"] = kMinicpm3Base;
  return {};
}

// Without a function of scores readers take sigmoids. The first layers, which have no experts, have
// RoPE in any case.
Status read_gguf_cohere_moe(GgufReading& in) {
  json& config = *in.config;
  const int64_t gating =
      FERRY_TRY(in.integer("expert_gating_func", kGgufCounts)).value_or(kGatingSigmoid);
  if (gating > kGatingSigmoid) {
    return in.keys->unsupported("expert_gating_func", "is neither softmax nor sigmoid");
  }
  config["expert_selection_fn"] = gating == kGatingSoftmax ? "softmax" : "sigmoid";
  const int64_t shared = FERRY_TRY(in.integer("expert_shared_count", kGgufCounts)).value_or(0);
  const json size = config.value("moe_intermediate_size", json(0));
  const auto length = FERRY_TRY(in.integer("expert_shared_feed_forward_length", kGgufCounts));
  if (shared > 0 && length.value_or(0) != 0 && *length != shared * size.get<int64_t>()) {
    return in.keys->unsupported("expert_shared_feed_forward_length",
                                "is not that of the experts, times their number");
  }
  config["num_shared_experts"] = shared;
  config["shared_expert_combination_strategy"] = "average";
  config.erase("shared_expert_intermediate_size");
  config["prefix_dense_intermediate_size"] = config.value("intermediate_size", json());
  config["prefix_dense_sliding_window_pattern"] = 1;
  if (!in.architecture->layer_norm) return {};
  config["layer_norm_eps"] = config.value("rms_norm_eps", json());
  config.erase("rms_norm_eps");
  return {};
}

// Files have the factor of the standard deviation below which a share of the activations of a layer
// lies. The share is a decimal number that somebody wrote.
Result<json> sparsity_shares(const GgufReading& in) {
  constexpr const char* kDeviations = "activation_sparsity_scale";
  constexpr double kDigits = 1e6;
  json shares = json::array();
  for (const json& factor : *in.keys->fields.find(in.keys->name(kDeviations))) {
    const double value = factor.is_number() ? factor.get<double>() : std::nan("");
    if (std::isnan(value)) {
      return in.keys->fields.bad(in.keys->name(kDeviations), "is not a list of numbers");
    }
    const double share = std::erfc(-value / std::numbers::sqrt2) / 2;  // -inf is a share of 0
    shares.push_back(std::round(share * kDigits) / kDigits);
  }
  return shares;
}

// Without their keys, readers take what the released models have.
Status read_gguf_gemma3n(GgufReading& in) {
  using namespace gemma3n_readers;
  json& config = *in.config;
  const JsonFields& fields = in.keys->fields;
  config["altup_num_inputs"] =
      FERRY_TRY(in.integer("altup.num_inputs", kGgufSizes)).value_or(kStreams);
  config["altup_active_idx"] = FERRY_TRY(in.integer("altup.active_idx", kGgufCounts)).value_or(0);
  config["altup_correct_scale"] = true;
  FERRY_RETURN_IF_ERROR(
      in.take("embedding_length_per_layer_input", "hidden_size_per_layer_input", kGgufSizes));
  config["num_kv_shared_layers"] = FERRY_TRY(in.integer("attention.shared_kv_layers", kGgufCounts))
                                       .value_or(std::max<int64_t>(0, in.layers - kOwnKeys));
  config["final_logit_softcapping"] =
      FERRY_TRY(fields.number_or(in.keys->name("final_logit_softcapping"), kGgufReals, kCap));
  json shares = json::array();
  if (in.states("activation_sparsity_scale")) {
    shares = FERRY_TRY(sparsity_shares(in));
  } else {
    for (int64_t i = 0; i < in.layers; ++i) shares.push_back(i < kSparse ? kShare : 0.0);
  }
  config["activation_sparsity_pattern"] = std::move(shares);
  if (in.states("attention.sliding_window_pattern")) return {};
  json types = json::array();
  for (int64_t i = 0; i < in.layers; ++i) {
    types.push_back((i + 1) % kFullEvery == 0 ? "full_attention" : "sliding_attention");
  }
  config["layer_types"] = std::move(types);
  return {};
}

// Readers compute SiLU, also of models that were trained with another activation: only files of
// Ferry say which one.
Status read_gguf_bitnet(GgufReading& in) {
  const std::string name = in.keys->name(kGgufActivation);
  const auto stated = FERRY_TRY(in.keys->fields.text(name));
  if (stated) (*in.config)["hidden_act"] = *stated;
  if (!stated) in.missing.push_back(name);
  return {};
}

// Without a head of its own, a model has that of T5 1.0: the embedding, scaled. A head in the file
// is scaled already, or is not to be scaled.
Status read_gguf_t5(GgufReading& in) {
  json& config = *in.config;
  const JsonFields& fields = in.keys->fields;
  FERRY_RETURN_IF_ERROR(
      in.take("attention.relative_buckets_count", "relative_attention_num_buckets", kGgufSizes));
  config["relative_attention_max_distance"] = kT5Farthest;
  config["num_layers"] = in.layers;
  config["num_decoder_layers"] =
      FERRY_TRY(fields.integer_or(in.keys->name("decoder_block_count"), kGgufSizes, in.layers));
  const auto start =
      FERRY_TRY(fields.integer(in.keys->name("decoder_start_token_id"), kGgufCounts));
  config["decoder_start_token_id"] = start.value_or(0);
  const bool gated = in.has("enc.blk.{i}.ffn_gate.weight");
  config["feed_forward_proj"] = gated ? "gated-gelu" : "relu";
  if (in.type->name == "t5") config["scale_decoder_outputs"] = !in.has("output.weight");
  config["is_encoder_decoder"] = true;
  return {};
}

// Layers with a window have twice as many heads of keys. Values may be shorter than keys.
Status read_gguf_mimo(GgufReading& in) {
  constexpr const char* kHeads = "attention.head_count_kv";
  json& config = *in.config;
  const JsonFields& fields = in.keys->fields;
  FERRY_RETURN_IF_ERROR(in.take("feed_forward_length", "intermediate_size", kGgufSizes));
  config["head_dim"] = in.head_dim;
  FERRY_RETURN_IF_ERROR(in.take("attention.value_length", "v_head_dim", kGgufSizes));
  const auto heads = FERRY_TRY(fields.integers(in.keys->name(kHeads), kGgufSizes));
  if (!heads || std::ssize(*heads) < in.layers) {
    return fields.bad(in.keys->name(kHeads), "does not state a number for each layer");
  }
  const auto factor = [&](size_t layer) {
    return config["layer_types"][layer] == "sliding_attention" ? 2 : 1;
  };
  const int64_t full = heads->front() / factor(0);
  config["num_key_value_heads"] = full;
  for (size_t i = 0; i < static_cast<size_t>(in.layers); ++i) {
    if ((*heads)[i] == factor(i) * full) continue;
    return in.keys->unsupported(kHeads, "is not twice as large in layers with a window");
  }
  json& ropes = config["rope_parameters"];
  if (ropes["full_attention"].contains("partial_rotary_factor")) {
    ropes["sliding_attention"]["partial_rotary_factor"] =
        ropes["full_attention"]["partial_rotary_factor"];
  }
  config["attention_value_scale"] =
      FERRY_TRY(fields.number_or(in.keys->name("attention.value_scale"), {0, kGgufReals.max}, 1.0));
  config["norm_topk_prob"] = true;
  return {};
}

}  // namespace ferry::converters
