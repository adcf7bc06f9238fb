// The keys of single architectures.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "dialects/gguf/model/encoder.h"
#include "dialects/gguf/model/layer_kinds.h"
#include "dialects/gguf/model/model_readers.h"
#include "dialects/gguf/model/reading.h"

namespace ferry::converters {
namespace {

using nlohmann::json;

// Writes numbers that a model without Mamba layers does not use.
void write_no_mamba(json& config) {
  config["mamba_expand"] = 1;
  config["mamba_n_heads"] = config.value("num_attention_heads", int64_t{1});
  config["mamba_d_head"] = "auto";
  config["mamba_n_groups"] = 1;
}

// Reads the sizes of Mamba-2 but for the number of its channels.
Status take_mamba2_sizes(GgufReading& in) {
  constexpr std::pair<const char*, const char*> kNumbers[] = {
      {"ssm.conv_kernel", "mamba_d_conv"},
      {"ssm.state_size", "mamba_d_state"},
      {"ssm.group_count", "mamba_n_groups"},
      {"ssm.time_step_rank", "mamba_n_heads"}};
  for (const auto& [key, member] : kNumbers) {
    FERRY_RETURN_IF_ERROR(in.take(key, member, kGgufSizes));
  }
  return {};
}

Status read_mamba_sizes(GgufReading& in) {
  json& config = *in.config;
  FERRY_RETURN_IF_ERROR(take_mamba2_sizes(in));
  const auto inner = FERRY_TRY(in.integer("ssm.inner_size", kGgufSizes));
  const int64_t heads = config.value("mamba_n_heads", int64_t{1});
  const int64_t hidden = std::max<int64_t>(1, config.value("hidden_size", int64_t{1}));
  if (!inner) return in.take("ssm.inner_size", "mamba_expand", kGgufSizes);
  if (*inner % heads != 0 || *inner % hidden != 0) {
    return in.keys->fields.bad(in.keys->name("ssm.inner_size"),
                               "is not a multiple of the number of heads and the embedding length");
  }
  config["mamba_d_head"] = *inner / heads;
  config["mamba_expand"] = *inner / hidden;
  return {};
}

Status read_scan_sizes(GgufReading& in) {
  json& config = *in.config;
  constexpr std::pair<const char*, const char*> kNumbers[] = {
      {"ssm.conv_kernel", "mamba_d_conv"},
      {"ssm.state_size", "mamba_d_state"},
      {"ssm.time_step_rank", "mamba_dt_rank"},
      {"ssm.inner_size", "mamba_expand"}};
  for (const auto& [key, member] : kNumbers) {
    FERRY_RETURN_IF_ERROR(in.take(key, member, kGgufSizes));
  }
  if (in.type->name == "falcon_mamba") config["mixer_rms_eps"] = config["rms_norm_eps"];
  if (!config.contains("mamba_expand")) return {};
  const int64_t hidden = std::max<int64_t>(1, config.value("hidden_size", int64_t{1}));
  const auto inner = config["mamba_expand"].get<int64_t>();
  config["mamba_expand"] = inner / hidden;
  if (inner % hidden == 0) return {};
  return in.keys->fields.bad(in.keys->name("ssm.inner_size"),
                             "is not a multiple of the embedding length");
}

// The numbers by which a config says that every so many layers one is special.
struct Period {
  int64_t period, offset;
};

// Returns the period of the special layers; nullopt where they have none.
std::optional<Period> period_of(const std::vector<bool>& special) {
  const auto count = std::ssize(special);
  const int64_t first = std::ranges::find(special, true) - special.begin();
  if (first == count) return Period{count + 1, count};
  const auto after = std::find(special.begin() + first + 1, special.end(), true);
  Period found{after == special.end() ? count : after - special.begin() - first, first};
  if (found.offset >= found.period) return std::nullopt;
  for (int64_t i = 0; i < count; ++i) {
    if (special[static_cast<size_t>(i)] != (i % found.period == found.offset)) return std::nullopt;
  }
  return found;
}

Status read_jamba(GgufReading& in) {
  json& config = *in.config;
  FERRY_RETURN_IF_ERROR(read_scan_sizes(in));
  std::vector<bool> attends, routes;
  const json types = config.value("layer_types", json::array());
  for (int64_t i = 0; i < in.layers; ++i) {
    const auto at = static_cast<size_t>(i);
    attends.push_back(at < types.size() && types[at] == "full_attention");
    routes.push_back(in.tensors->routed.contains(i));
  }
  const auto attention = period_of(attends), experts = period_of(routes);
  if (!attention) {
    return in.keys->unsupported("attention.head_count_kv", "is not 0 in layers without a period");
  }
  if (!experts) return in.keys->unsupported("expert_count", "is for layers without a period");
  config["attn_layer_period"] = attention->period;
  config["attn_layer_offset"] = attention->offset;
  config["expert_layer_period"] = experts->period;
  config["expert_layer_offset"] = experts->offset;
  if (config.value("num_experts", int64_t{0}) == 0) config["num_experts"] = 1;
  for (const char* key : {"mlp_only_layers", "decoder_sparse_step", "layer_types"}) {
    config.erase(key);
  }
  return {};
}

// Falcon Mamba has the architecture name of Mamba.
bool has_inner_norms(const GgufReading& file) {
  const auto normed = file.keys->fields.flag(file.keys->name("ssm.dt_b_c_rms"));
  return normed && normed->value_or(false);
}

// Sigmoids are those of Kimi and similar models. transformers 5 leaves the function out of the
// config of DeepSeek V3.
bool has_sigmoid_experts(const GgufReading& file) {
  const auto gating = file.integer("expert_gating_func", {0, INT32_MAX});
  if (gating && gating->value_or(0) > 0) return **gating == kGatingSigmoid;
  return file.has("blk.{i}.exp_probs_b.bias");
}

bool has_experts(const GgufReading& file) {
  const auto experts = file.integer("expert_count", {0, INT32_MAX});
  return experts && experts->value_or(0) > 0;
}

// Olmo 3 has the architecture name of Olmo 2.
bool has_windows(const GgufReading& file) {
  const auto window = file.integer("attention.sliding_window", {0, INT32_MAX});
  return window && window->value_or(0) > 0;
}

// Granite 4 without RoPE has the architecture name of Granite 3.
bool turns_nothing(const GgufReading& file) {
  const auto turned = file.keys->fields.flag(file.keys->name("rope.scaling.finetuned"));
  return turned && !turned->value_or(true);
}

// In newer files the keys of all heads have been split off kv_b_proj, in older files not.
Status read_latent_attention(GgufReading& in) {
  json& config = *in.config;
  const bool split = in.states("attention.key_length_mla");
  const char* key = split ? "attention.key_length_mla" : "attention.key_length";
  FERRY_RETURN_IF_ERROR(in.take(key, "qk_nope_head_dim", kGgufSizes));
  FERRY_RETURN_IF_ERROR(in.take(split ? "attention.value_length_mla" : "attention.value_length",
                                "v_head_dim", kGgufSizes));
  FERRY_RETURN_IF_ERROR(in.take("attention.kv_lora_rank", "kv_lora_rank", kGgufSizes));
  if (config.contains("qk_nope_head_dim")) {
    const int64_t plain = config["qk_nope_head_dim"].get<int64_t>() - in.head_dim;
    if (plain < 1) {
      return in.keys->fields.bad(in.keys->name(key), "leaves no dimension of a head without RoPE");
    }
    config["qk_nope_head_dim"] = plain;
  }
  const auto rank = FERRY_TRY(in.integer("attention.q_lora_rank", {0, INT32_MAX}));
  config["q_lora_rank"] = rank.value_or(0) > 0 ? json(*rank) : json();
  config["num_key_value_heads"] = config.value("num_attention_heads", json());
  if (in.architecture->sigmoid_experts) return {};
  config["topk_method"] = config.value("n_group", 1) > 1 ? "group_limited_greedy" : "greedy";
  if (!config.value("norm_topk_prob", false)) return {};
  return in.keys->unsupported("expert_weights_norm",
                              "is true: not supported where scores are a softmax");
}

// Reads Granite with Mamba layers, experts, or heads without RoPE.
Status read_mamba(GgufReading& in) {
  json& config = *in.config;
  const bool turned =
      FERRY_TRY(in.keys->fields.flag_or(in.keys->name("rope.scaling.finetuned"), true));
  config["position_embedding_type"] = turned ? "rope" : "nope";
  if (config.value("num_experts", int64_t{0}) > 0) {
    config["moe_intermediate_size"] = config["intermediate_size"];
    if (!config.contains("shared_expert_intermediate_size")) {
      return in.keys->unsupported("expert_shared_feed_forward_length",
                                  "is missing: experts need a shared one in this architecture");
    }
    config["intermediate_size"] = config["shared_expert_intermediate_size"];
  }
  config.erase("shared_expert_intermediate_size");
  if (in.has("blk.{i}.ssm_in.weight")) return read_mamba_sizes(in);
  write_no_mamba(config);
  return {};
}

Status read_experts_alone(GgufReading& in) {
  const auto turned = FERRY_TRY(in.keys->fields.flag(in.keys->name("rope.scaling.finetuned")));
  if (turned.value_or(true)) return {};
  return in.keys->unsupported("rope.scaling.finetuned",
                              "is false: not supported where experts have no shared one");
}

// transformers scales the chosen scores to a sum of 1, whatever a config says.
Status read_afmoe(GgufReading& in) {
  json& config = *in.config;
  config["mup_enabled"] = true;
  const auto shared = FERRY_TRY(in.integer("expert_shared_count", kGgufCounts));
  config["num_shared_experts"] = shared.value_or(0);
  const double scale = FERRY_TRY(
      in.keys->fields.number_or(in.keys->name("expert_weights_scale"), {0, kGgufReals.max}, 0));
  config["routed_scaling_factor"] = scale == 0 ? 1.0 : scale;
  if (FERRY_TRY(in.keys->fields.flag_or(in.keys->name("expert_weights_norm"), false))) return {};
  return in.keys->unsupported("expert_weights_norm", "is not true: not supported");
}

Status read_ernie(GgufReading& in) {
  json& config = *in.config;
  config["moe_layer_interval"] =
      FERRY_TRY(in.integer("interleave_moe_layer_step", kGgufSizes)).value_or(1);
  config["moe_layer_start_index"] =
      FERRY_TRY(in.integer("leading_dense_block_count", kGgufCounts)).value_or(0);
  if (config.value("num_experts", int64_t{0}) == 0) config["moe_layer_start_index"] = in.layers;
  config["moe_layer_end_index"] = -1;
  const auto shared = FERRY_TRY(in.integer("expert_shared_count", kGgufCounts));
  config["moe_num_shared_experts"] = shared.value_or(0);
  for (const char* key : {"mlp_only_layers", "decoder_sparse_step"}) config.erase(key);
  return {};
}

// Readers know the chunks of attention, the growth of queries and which model has norms of heads by
// heart.
Status read_llama4(GgufReading& in) {
  json& config = *in.config;
  const auto window = FERRY_TRY(in.integer("attention.sliding_window", kGgufCounts));
  if (window == 0) {
    return in.keys->unsupported("attention.sliding_window", "is 0: only chunks are supported");
  }
  const auto every = FERRY_TRY(in.integer("attention.sliding_window_pattern", kGgufCounts));
  if (every.value_or(kLlama4Every) != kLlama4Every) {
    return in.keys->unsupported("attention.sliding_window_pattern", "is not 4");
  }
  const int64_t experts = config.value("num_experts", int64_t{0});
  if (experts == 0) {
    return in.keys->unsupported("expert_count", "is 0: not supported in this architecture");
  }
  config["sliding_window"] = kLlama4Chunk;
  config["attn_temperature_tuning"] = true;
  config["floor_scale"] = kLlama4Chunk;
  config["attn_scale"] = kLlama4Growth;
  config["use_qk_norm"] = experts != kLlama4Unnormed;
  config["shared_expert_intermediate_size"] = config["moe_intermediate_size"];
  config["moe_layers"] = json(in.tensors->routed);
  for (const char* key : {"mlp_only_layers", "decoder_sparse_step", "layer_types"}) {
    config.erase(key);
  }
  return {};
}

// The config has its sizes of attention and of experts in objects of their own.
Status read_dbrx(GgufReading& in) {
  json& config = *in.config;
  const auto moved = [&](const char* from) {
    json value = config.value(from, json());
    config.erase(from);
    return value;
  };
  if (config.value("num_experts", int64_t{0}) == 0) {
    return in.keys->unsupported("expert_count", "is 0: not supported in this architecture");
  }
  // The reference wants a base here too, and reads the one of rope_parameters.
  config["attn_config"] = {{"kv_n_heads", config.value("num_key_value_heads", json())},
                           {"rope_theta", config["rope_parameters"].value("rope_theta", json())},
                           {"clip_qkv", moved("clip_qkv")}};
  config["ffn_config"] = {{"moe_num_experts", moved("num_experts")},
                          {"moe_top_k", moved("num_experts_per_tok")},
                          {"ffn_hidden_size", config.value("intermediate_size", json())},
                          {"moe_normalize_expert_weights", 1.0},
                          {"ffn_act_fn", {{"name", "silu"}}}};
  return {};
}

// Multipliers are part of the weights of a file.
Status read_falcon_h1(GgufReading& in) {
  json& config = *in.config;
  FERRY_RETURN_IF_ERROR(take_mamba2_sizes(in));
  FERRY_RETURN_IF_ERROR(in.take("ssm.inner_size", "mamba_d_ssm", kGgufSizes));
  config["mamba_conv_bias"] = in.has("blk.{i}.ssm_conv1d.bias");
  config["mamba_rms_norm"] = in.has("blk.{i}.ssm_norm.weight");
  config["mamba_norm_before_gate"] = false;
  return {};
}

// Returns what a layer is, by its tensors.
const char* nemotron_block(const GgufReading& in, int64_t layer) {
  if (in.tensors->recurrent.contains(layer)) return "linear_attention";
  if (in.tensors->valued.contains(layer)) return "full_attention";
  return in.tensors->routed.contains(layer) ? "moe" : "mlp";
}

Status read_nemotron_experts(GgufReading& in) {
  json& config = *in.config;
  const JsonFields& fields = in.keys->fields;
  config["n_routed_experts"] = config.value("num_experts", json());
  config["moe_shared_expert_intermediate_size"] =
      config.value("shared_expert_intermediate_size", json());
  config["norm_topk_prob"] = FERRY_TRY(fields.flag_or(in.keys->name("expert_weights_norm"), false));
  const double scale =
      FERRY_TRY(fields.number_or(in.keys->name("expert_weights_scale"), {0, kGgufReals.max}, 0));
  config["routed_scaling_factor"] = scale == 0 ? 1.0 : scale;
  constexpr std::pair<const char*, const char*> kOfGroups[] = {
      {"expert_group_count", "n_group"}, {"expert_group_used_count", "topk_group"}};
  for (const auto& [key, member] : kOfGroups) {
    config[member] = std::max<int64_t>(1, FERRY_TRY(in.integer(key, kGgufCounts)).value_or(1));
  }
  if (in.states("moe_latent_size")) {
    return in.take("moe_latent_size", "moe_latent_size", kGgufSizes);
  }
  return {};
}

Status read_nemotron_mamba(GgufReading& in) {
  json& config = *in.config;
  FERRY_RETURN_IF_ERROR(take_mamba2_sizes(in));
  FERRY_RETURN_IF_ERROR(in.take("ssm.inner_size", "mamba_d_head", kGgufSizes));
  const int64_t heads = config.value("mamba_n_heads", int64_t{1});
  const int64_t inner = config.value("mamba_d_head", heads);
  if (inner % heads != 0) {
    return in.keys->fields.bad(in.keys->name("ssm.inner_size"), "is not a multiple of the heads");
  }
  config["mamba_d_head"] = inner / heads;
  return {};
}

Status read_nemotron_h(GgufReading& in) {
  json& config = *in.config;
  if (!in.tensors->recurrent.empty()) FERRY_RETURN_IF_ERROR(read_nemotron_mamba(in));
  config["mamba_conv_bias"] = in.has("blk.{i}.ssm_conv1d.bias");
  json blocks = json::array();
  for (int64_t i = 0; i < in.layers; ++i) blocks.push_back(nemotron_block(in, i));
  if (std::ranges::count(blocks, "moe") > 0) FERRY_RETURN_IF_ERROR(read_nemotron_experts(in));
  if (std::ranges::count(blocks, "mlp") == 0) config.erase("intermediate_size");
  config["layers_block_type"] = std::move(blocks);
  config.erase("layer_types");
  return {};
}

Status read_short_convs(GgufReading& in) {
  if (in.type->name == "lfm2") (*in.config)["block_auto_adjust_ff_dim"] = false;  // already done
  return in.take("shortconv.l_cache", "conv_L_cache", kGgufSizes);
}

// Without a second norm, the first one serves both blocks. GPT-NeoX has two norms in any case.
Status read_parallel_residual(GgufReading& in) {
  const bool stated =
      FERRY_TRY(in.keys->fields.flag_or(in.keys->name("use_parallel_residual"), true));
  const bool one_norm = !in.has("blk.{i}.ffn_norm.weight");
  (*in.config)["use_parallel_residual"] = in.type->name == "gpt_neox" ? stated : one_norm;
  return {};
}

Status read_growing_queries(GgufReading& in) {
  json& rope = (*in.config)["rope_parameters"];
  const auto growth =
      FERRY_TRY(in.keys->fields.number(in.keys->name("attention.temperature_scale"), kGgufReals));
  if (growth && rope["rope_type"] != "yarn") {
    return in.keys->unsupported("attention.temperature_scale", "is not supported without yarn");
  }
  rope["llama_4_scaling_beta"] = growth.value_or(0.0);
  return {};
}

}  // namespace

bool has_gguf_sign(const GgufReading& file, GgufSign sign) {
  switch (sign) {
    case GgufSign::kNone:
      return true;
    case GgufSign::kSigmoidExperts:
      return has_sigmoid_experts(file);
    case GgufSign::kExperts:
      return has_experts(file);
    case GgufSign::kSharedExpert:
      return file.has("blk.{i}.ffn_up_shexp.weight");
    case GgufSign::kWindows:
      return has_windows(file);
    case GgufSign::kNoRope:
      return turns_nothing(file);
    case GgufSign::kInnerNorms:
      return has_inner_norms(file);
    case GgufSign::kTwoNorms:
      return file.has("blk.{i}.attn_norm_2.weight");
    case GgufSign::kRmsNorms:
      return file.states("attention.layer_norm_rms_epsilon");
    case GgufSign::kBiasesOfLayers:
      return file.tensors->biased.size() > 1;
    case GgufSign::kNoTokenTypes:
      return !file.has("token_types.weight");
    case GgufSign::kNever:
      return false;
    case GgufSign::kGrowingQueries:
      return file.states("attention.temperature_scale") ||
             file.states("rope.scaling.yarn_log_multiplier");
  }
  return false;
}

Status read_gguf_own_keys(GgufReading& reading) {
  switch (reading.architecture->own_keys) {
    case GgufOwnKeys::kNone:
      return {};
    case GgufOwnKeys::kLatentAttention:
      return read_latent_attention(reading);
    case GgufOwnKeys::kMamba:
      return read_mamba(reading);
    case GgufOwnKeys::kMamba2:
      return read_mamba_sizes(reading);
    case GgufOwnKeys::kSelectiveScan:
      return read_scan_sizes(reading);
    case GgufOwnKeys::kJamba:
      return read_jamba(reading);
    case GgufOwnKeys::kExpertsAlone:
      return read_experts_alone(reading);
    case GgufOwnKeys::kShortConvs:
      return read_short_convs(reading);
    case GgufOwnKeys::kParallel:
      return read_parallel_residual(reading);
    case GgufOwnKeys::kGrowingQueries:
      return read_growing_queries(reading);
    case GgufOwnKeys::kErnie:
      return read_ernie(reading);
    case GgufOwnKeys::kDbrx:
      return read_dbrx(reading);
    case GgufOwnKeys::kFalconH1:
      return read_falcon_h1(reading);
    case GgufOwnKeys::kNemotronH:
      return read_nemotron_h(reading);
    case GgufOwnKeys::kFalcon:
      return read_gguf_falcon(reading);
    case GgufOwnKeys::kMpt:
      return read_gguf_mpt(reading);
    case GgufOwnKeys::kMinicpm3:
      return read_gguf_minicpm3(reading);
    case GgufOwnKeys::kCohereMoe:
      return read_gguf_cohere_moe(reading);
    case GgufOwnKeys::kGemma3n:
      return read_gguf_gemma3n(reading);
    case GgufOwnKeys::kMimo:
      return read_gguf_mimo(reading);
    case GgufOwnKeys::kT5:
      return read_gguf_t5(reading);
    case GgufOwnKeys::kBitnet:
      return read_gguf_bitnet(reading);
    case GgufOwnKeys::kEncoder:
      return read_gguf_encoder(reading);
    case GgufOwnKeys::kBert:
      return read_gguf_bert(reading);
    case GgufOwnKeys::kModernBert:
      return read_gguf_modern_bert(reading);
    case GgufOwnKeys::kEmbeddingGemma:
      return read_gguf_embedding_gemma(reading);
    case GgufOwnKeys::kLlama4:
      return read_llama4(reading);
    case GgufOwnKeys::kAfmoe:
      return read_afmoe(reading);
    case GgufOwnKeys::kKindsOfLayers:
      return read_kinds_of_layers(reading);
  }
  return {};
}

}  // namespace ferry::converters
