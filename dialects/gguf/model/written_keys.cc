#include "dialects/gguf/model/written_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/json.h"
#include "core/text.h"
#include "dialects/gguf/model/written_key_writer.h"

namespace ferry::converters {
namespace {

using nlohmann::json;
using Type = RopeConfig::Type;

constexpr uint32_t kQuantizationVersion = 2;

// Returns the text part of a config as one object.
Result<json> merged_config(const GgufKeysInput& input) {
  json config = FERRY_TRY(parse_json(input.config_text, printable(input.config_name)));
  if (!config.is_object()) return bad_input(printable(input.config_name) + ": not a JSON object");
  for (const char* part : {"text_config", "llm_config"}) {
    const auto text = config.find(part);
    if (text == config.end() || !text->is_object()) continue;
    const json inner = *text;
    config.update(inner);
    break;
  }
  return config;
}

}  // namespace

GgufKeyWriter::GgufKeyWriter(const GgufKeysInput& input, json config)
    : in_(input), c_(*input.config), name_(input.architecture->name), json_(std::move(config)) {}

Result<std::vector<GgufKeyValue>> GgufKeyWriter::run() {
  set("general.architecture", std::string(name_));
  if (c_.rope.type == Type::kLongRope) {
    own("rope.scaling.attn_factor", real(c_.rope.attention_factor));
  }
  for (const GgufKeyValue& numbers : in_.layer_numbers) set(numbers.key, numbers.value);
  set("general.type", std::string("model"));
  FERRY_RETURN_IF_ERROR(add_gguf_sampling(in_.generation_text, out_));
  if (!in_.name.empty()) set("general.name", in_.name);
  set("general.size_label", in_.size_label);
  for (const GgufKey key : in_.architecture->keys) (this->*function_of(key))();
  if (in_.architecture->hides_gelu() && c_.activation == Activation::kGeluTanh) {
    own(kGgufActivation, std::string("gelu_pytorch_tanh"));
  }
  set("general.quantization_version", kQuantizationVersion);
  return std::move(out_);
}

double GgufKeyWriter::mscale_all_dim() const {
  const json* all = rope_member("mscale_all_dim");
  return all != nullptr && all->is_number() ? all->get<double>() : 0;
}

// Sets a key. One that is there already keeps its place.
void GgufKeyWriter::set(std::string key, GgufValue value) {
  const auto found = std::ranges::find(out_, key, &GgufKeyValue::key);
  if (found == out_.end()) {
    out_.push_back({std::move(key), std::move(value)});
  } else {
    found->value = std::move(value);
  }
}

void GgufKeyWriter::own(std::string_view key, GgufValue value) {
  set(fmt::format("{}.{}", name_, key), std::move(value));
}

bool GgufKeyWriter::states(const char* key) const {
  const auto found = json_.find(key);
  return found != json_.end() && !found->is_null();
}

// Returns a number of the config, or 0.
double GgufKeyWriter::number(const char* key) const {
  const auto found = json_.find(key);
  return found != json_.end() && found->is_number() ? found->get<double>() : 0;
}

const json* GgufKeyWriter::member(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

void GgufKeyWriter::add_blocks() { own("block_count", whole(c_.num_layers)); }

void GgufKeyWriter::add_context() {
  if (c_.source) {  // distances have no greatest one
    constexpr double kUsual = 512;
    own("context_length",
        whole(static_cast<int64_t>(states("n_positions") ? number("n_positions") : kUsual)));
    return;
  }
  own("context_length", whole(gguf_ignored_window(in_).value_or(c_.max_positions)));
}

void GgufKeyWriter::add_embedding() { own("embedding_length", whole(c_.hidden_size)); }

void GgufKeyWriter::add_feed_forward() {
  own("feed_forward_length", whole(in_.architecture->states_alone ? 0 : feed_forward_length()));
}

// The width of the MLP or of the experts of each layer.
void GgufKeyWriter::add_layer_feed_forward() {
  std::vector<int32_t> widths;
  for (int64_t i = 0; i < c_.num_layers; ++i) {
    const bool mlp = c_.layer_types[static_cast<size_t>(i)] == LayerType::kNoMixer;
    const int64_t width = c_.has_experts(i) ? c_.moe.expert_size : mlp ? c_.intermediate_size : 0;
    widths.push_back(static_cast<int32_t>(width));
  }
  own("feed_forward_length", widths);
}

void GgufKeyWriter::add_data_layout() { own("tensor_data_layout", std::string("jploski")); }

// The reference has this number for all models.
void GgufKeyWriter::add_alibi_bias() {
  constexpr float kLargest = 8;
  own("attention.max_alibi_bias", kLargest);
}

void GgufKeyWriter::add_mimo_heads() {
  std::vector<int32_t> heads;
  std::vector<bool> slides;
  for (int64_t i = 0; i < c_.num_layers; ++i) {
    heads.push_back(static_cast<int32_t>(c_.heads_of(i).kv_heads));
    slides.push_back(c_.layer_types[static_cast<size_t>(i)] == LayerType::kSlidingAttention);
  }
  own("attention.head_count_kv", heads);
  own("attention.sliding_window_pattern", slides);
  own("attention.key_length", whole(c_.head_dim));
  own("attention.value_length", whole(c_.number("v_head_dim")));
  if (c_.scalars.values != 1) own("attention.value_scale", real(c_.scalars.values));
}

void GgufKeyWriter::add_both_epsilons() {
  add_layer_norm_epsilon();
  add_rms_epsilon();
}

void GgufKeyWriter::add_heads() {
  own("attention.head_count", whole(in_.architecture->states_alone ? 0 : c_.num_heads));
}

void GgufKeyWriter::add_rms_epsilon() {
  own("attention.layer_norm_rms_epsilon", real(c_.rms_norm_eps));
}

void GgufKeyWriter::add_layer_norm_epsilon() {
  own("attention.layer_norm_epsilon", real(c_.rms_norm_eps));
}

void GgufKeyWriter::add_file_type() {
  set("general.file_type", gguf_file_type_number(in_.type, in_.has_mxfp4));
}

void GgufKeyWriter::add_quantized_file_type() {
  if (gguf_file_type_info(in_.type).mixed) add_file_type();
}

void GgufKeyWriter::add_vocabulary() { own("vocab_size", whole(c_.vocab_size)); }

void GgufKeyWriter::add_logit_scale() { own("logit_scale", real(c_.scalars.logits)); }

void GgufKeyWriter::add_clamp() {
  if (c_.scalars.qkv_clip) own("attention.clamp_kqv", real(*c_.scalars.qkv_clip));
}

void GgufKeyWriter::add_no_bos() { set("tokenizer.ggml.add_bos_token", false); }

void GgufKeyWriter::add_standard() {
  add_blocks();
  add_context();
  add_embedding();
  if (feed_forward_length() > 0) add_feed_forward();
  add_heads();
  add_kv_heads();
  add_rope();
  add_epsilon();
  if (c_.moe.experts == 0 && !in_.architecture->has_key(GgufKey::kMambaSizes)) return;
  if (in_.architecture->has_key(GgufKey::kExpertCounts)) return;
  own("expert_count", whole(c_.moe.experts));
  if (!in_.architecture->has_key(GgufKey::kExpertsOfToken)) add_experts_of_token();
  if (in_.architecture->grouped_experts) add_expert_groups();
  if (in_.architecture->states_gating && c_.moe.experts > 0) add_expert_gating();
}

// Returns 0 where every layer has experts.
int64_t GgufKeyWriter::feed_forward_length() const {
  // The MLP beside the experts has a key of its own.
  const bool granite4 = in_.architecture->has_key(GgufKey::kMambaSizes);
  if (granite4 && c_.moe.experts > 0) return c_.moe.expert_size;
  if (in_.architecture->own_keys == GgufOwnKeys::kDbrx) return c_.moe.expert_size;
  if (states("intermediate_size_mlp")) {  // of llama4, whose intermediate_size is that of experts
    return static_cast<int64_t>(number("intermediate_size_mlp"));
  }
  const bool only_experts = c_.moe.experts > 0 && !std::ranges::count(c_.moe.layers, false);
  if (only_experts && states("intermediate_size")) {
    return static_cast<int64_t>(number("intermediate_size"));
  }
  return c_.intermediate_size > 0 ? c_.intermediate_size
                                  : static_cast<int64_t>(number("intermediate_size"));
}

void GgufKeyWriter::add_kv_heads() {
  if (in_.architecture->without_heads.empty()) {
    own("attention.head_count_kv", whole(c_.num_kv_heads));
    return;
  }
  std::vector<int32_t> heads;
  for (const LayerType type : c_.layer_types) {
    heads.push_back(is_attention(type) ? static_cast<int32_t>(c_.num_kv_heads) : 0);
  }
  own("attention.head_count_kv", heads);
}

// The converter derives the kind of a norm from the name of its epsilon.
void GgufKeyWriter::add_epsilon() {
  const bool rms = states("norm_eps") || c_.number("rms_norm") != 0;
  const bool layer_norm = in_.architecture->layer_norm && !rms;
  layer_norm ? add_layer_norm_epsilon() : add_rms_epsilon();
}

void GgufKeyWriter::add_head_lengths() {
  own("attention.key_length", whole(c_.head_dim));
  own("attention.value_length", whole(c_.head_dim));
}

void GgufKeyWriter::add_stated_head_lengths() {
  states("head_dim") ? add_head_lengths() : add_other_head_lengths();
}

void GgufKeyWriter::add_other_head_lengths() {
  if (c_.head_dim * c_.num_heads != c_.hidden_size) add_head_lengths();
}

void GgufKeyWriter::add_multipliers() {
  own("attention.scale",
      real(c_.scalars.attention.value_or(1 / std::sqrt(static_cast<double>(c_.head_dim)))));
  own("embedding_scale", real(c_.scalars.embedding));
  own("residual_scale", real(c_.scalars.residual));
  own("logit_scale",
      real(states("logits_scaling") ? number("logits_scaling") : 1 / c_.scalars.logits));
}

void GgufKeyWriter::add_score_softcap() {
  own("attn_logit_softcapping", real(c_.scalars.attention_softcap.value_or(0)));
}

void GgufKeyWriter::add_logit_softcap() {
  // Readers of gemma4 cap logits where the key is missing, and do not where it is 0.
  const bool caps_by_default = in_.architecture->own_keys == GgufOwnKeys::kKindsOfLayers;
  if (c_.scalars.logit_softcap || caps_by_default) {
    own("final_logit_softcapping", real(c_.scalars.logit_softcap.value_or(0)));
  }
}

void GgufKeyWriter::add_window() {
  if (c_.sliding_window) own("attention.sliding_window", whole(*c_.sliding_window));
}

void GgufKeyWriter::add_window_or_none() {
  own("attention.sliding_window", whole(c_.sliding_window.value_or(0)));
}

void GgufKeyWriter::add_window_pattern() {
  if (!c_.sliding_window) return;
  std::vector<bool> sliding;
  for (const LayerType type : c_.layer_types) {
    sliding.push_back(type == LayerType::kSlidingAttention);
  }
  own("attention.sliding_window_pattern", sliding);
}

void GgufKeyWriter::add_other_windows() {
  if (!gguf_has_usual_windows(in_)) add_window_pattern();
}

// The converter writes true where the config states nothing.
void GgufKeyWriter::add_parallel_residual() {
  const json* stated = member(json_, "use_parallel_residual");
  own("use_parallel_residual", stated == nullptr || (stated->is_boolean() && stated->get<bool>()));
}

GgufKeyWriter::Function GgufKeyWriter::function_of(GgufKey key) {
  using enum GgufKey;
  static constexpr std::pair<GgufKey, Function> kWriters[] = {
      {kStandard, &GgufKeyWriter::add_standard},
      {kContext, &GgufKeyWriter::add_context},
      {kOriginalContext, &GgufKeyWriter::add_original_context},
      {kEmbedding, &GgufKeyWriter::add_embedding},
      {kBlocks, &GgufKeyWriter::add_blocks},
      {kFeedForward, &GgufKeyWriter::add_feed_forward},
      {kHeads, &GgufKeyWriter::add_heads},
      {kKvHeads, &GgufKeyWriter::add_kv_heads},
      {kRmsEpsilon, &GgufKeyWriter::add_rms_epsilon},
      {kLayerNormEpsilon, &GgufKeyWriter::add_layer_norm_epsilon},
      {kHeadLengths, &GgufKeyWriter::add_head_lengths},
      {kStatedHeadLengths, &GgufKeyWriter::add_stated_head_lengths},
      {kOtherHeadLengths, &GgufKeyWriter::add_other_head_lengths},
      {kFileType, &GgufKeyWriter::add_file_type},
      {kQuantizedFileType, &GgufKeyWriter::add_quantized_file_type},
      {kRopeDimension, &GgufKeyWriter::add_rope_dimension},
      {kRopeBase, &GgufKeyWriter::add_rope_base},
      {kOtherRopeBase, &GgufKeyWriter::add_other_rope_base},
      {kRopeScaling, &GgufKeyWriter::add_rope_scaling},
      {kUnscaledRope, &GgufKeyWriter::add_unscaled_rope},
      {kNamedActivation, &GgufKeyWriter::add_named_activation},
      {kAlphaRope, &GgufKeyWriter::add_alpha_rope},
      {kYarnMultiplier, &GgufKeyWriter::add_yarn_multiplier},
      {kQueryGrowth, &GgufKeyWriter::add_query_growth},
      {kVocabulary, &GgufKeyWriter::add_vocabulary},
      {kWindow, &GgufKeyWriter::add_window},
      {kWindowOrNone, &GgufKeyWriter::add_window_or_none},
      {kWindowPattern, &GgufKeyWriter::add_window_pattern},
      {kOtherWindows, &GgufKeyWriter::add_other_windows},
      {kScoreSoftcap, &GgufKeyWriter::add_score_softcap},
      {kLogitSoftcap, &GgufKeyWriter::add_logit_softcap},
      {kLogitScale, &GgufKeyWriter::add_logit_scale},
      {kClamp, &GgufKeyWriter::add_clamp},
      {kMultipliers, &GgufKeyWriter::add_multipliers},
      {kExpertSizes, &GgufKeyWriter::add_expert_sizes},
      {kExpertLength, &GgufKeyWriter::add_expert_length},
      {kSharedCount, &GgufKeyWriter::add_shared_count},
      {kSharedLength, &GgufKeyWriter::add_shared_length},
      {kPredictingLayers, &GgufKeyWriter::add_predicting_layers},
      {kDenseBlocks, &GgufKeyWriter::add_dense_blocks},
      {kExpertGating, &GgufKeyWriter::add_expert_gating},
      {kExpertScale, &GgufKeyWriter::add_expert_scale},
      {kExpertNorm, &GgufKeyWriter::add_expert_norm},
      {kExpertNormIfAny, &GgufKeyWriter::add_expert_norm_if_any},
      {kLatentLengths, &GgufKeyWriter::add_latent_lengths},
      {kLatentSizes, &GgufKeyWriter::add_latent_sizes},
      {kLatentMultiplier, &GgufKeyWriter::add_latent_multiplier},
      {kMambaSizes, &GgufKeyWriter::add_mamba_sizes},
      {kStateSizes, &GgufKeyWriter::add_state_sizes},
      {kInnerNorms, &GgufKeyWriter::add_inner_norms},
      {kExpertCounts, &GgufKeyWriter::add_expert_counts},
      {kExpertsOfToken, &GgufKeyWriter::add_experts_of_token},
      {kExpertInterval, &GgufKeyWriter::add_expert_interval},
      {kExpertStep, &GgufKeyWriter::add_expert_step},
      {kTurned, &GgufKeyWriter::add_turned},
      {kLinearAttention, &GgufKeyWriter::add_linear_attention},
      {kShortConv, &GgufKeyWriter::add_short_conv},
      {kParallelBlocks, &GgufKeyWriter::add_parallel_residual},
      {kDeepstack, &GgufKeyWriter::add_deepstack},
      {kNoBos, &GgufKeyWriter::add_no_bos},
      {kDataLayout, &GgufKeyWriter::add_data_layout},
      {kAlibiBias, &GgufKeyWriter::add_alibi_bias},
      {kLatentHeads, &GgufKeyWriter::add_latent_heads},
      {kLayerFeedForward, &GgufKeyWriter::add_layer_feed_forward},
      {kBothEpsilons, &GgufKeyWriter::add_both_epsilons},
      {kMamba2Sizes, &GgufKeyWriter::add_state_sizes},
      {kExpertGroups, &GgufKeyWriter::add_all_expert_groups},
      {kOneSharedExpert, &GgufKeyWriter::add_one_shared_expert},
      {kLatentExperts, &GgufKeyWriter::add_latent_experts},
      {kMimoHeads, &GgufKeyWriter::add_mimo_heads},
      {kNotCausal, &GgufKeyWriter::add_not_causal},
      {kSourceBlocks, &GgufKeyWriter::add_source_blocks},
      {kRelativeBuckets, &GgufKeyWriter::add_relative_buckets},
      {kDecoderStart, &GgufKeyWriter::add_decoder_start},
      {kHalfWindow, &GgufKeyWriter::add_half_window},
      {kProjections, &GgufKeyWriter::add_projections},
      {kLabels, &GgufKeyWriter::add_labels},
      {kStreams, &GgufKeyWriter::add_streams},
      {kPooling, &GgufKeyWriter::add_pooling},
      {kSlidingRopeBase, &GgufKeyWriter::add_sliding_rope_base},
      {kModernEpsilons, &GgufKeyWriter::add_modern_epsilons},
      {kLabelPooling, &GgufKeyWriter::add_label_pooling},
      {kLocalWindow, &GgufKeyWriter::add_local_window},
      {kWindowStep, &GgufKeyWriter::add_window_step},
      {kHiddenActivation, &GgufKeyWriter::add_hidden_activation},
      {kKindsOfLayers, &GgufKeyWriter::add_kinds_of_layers}};
  return std::ranges::find(kWriters, key, &std::pair<GgufKey, Function>::first)->second;
}

Result<std::vector<GgufKeyValue>> gguf_model_keys(const GgufKeysInput& input) {
  return GgufKeyWriter(input, FERRY_TRY(merged_config(input))).run();
}

int64_t gguf_expert_step(const ModelConfig& config) {
  return std::ranges::find(config.moe.layers, true) - config.moe.layers.begin() + 1;
}

double gguf_mscale_all_dim(const GgufKeysInput& input) {
  const auto config = merged_config(input);
  return config ? GgufKeyWriter(input, *config).mscale_all_dim() : 0;
}

std::vector<int32_t> gguf_rope_sections(const GgufKeysInput& input) {
  const auto config = merged_config(input);
  return config ? GgufKeyWriter(input, *config).rope_sections() : std::vector<int32_t>();
}

double gguf_yarn_multiplier(const RopeConfig& rope) {
  const double unit = 0.1 * std::log(rope.factor);
  return ((unit + 1) / rope.attention_factor - 1) / unit;
}

}  // namespace ferry::converters
