#include "dialects/gguf/model/written_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/json.h"
#include "core/text.h"
#include "dialects/gguf/model/layer_kinds.h"

namespace ferry::converters {
namespace {

using nlohmann::json;
using Type = RopeConfig::Type;

constexpr uint32_t kQuantizationVersion = 2;
constexpr int64_t kPhi3Original = 4096;        // default of its configuration class
constexpr int64_t kHunyuanPositions = 262144;  // written for every config with an alpha

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

class Keys {
 public:
  Keys(const GgufKeysInput& input, json config)
      : in_(input), c_(*input.config), name_(input.architecture->name), json_(std::move(config)) {}

  Result<std::vector<GgufKeyValue>> run() {
    set("general.architecture", std::string(name_));
    if (c_.rope.type == Type::kLongRope) {
      own("rope.scaling.attn_factor", real(c_.rope.attention_factor));
    }
    set("general.type", std::string("model"));
    FERRY_RETURN_IF_ERROR(add_gguf_sampling(in_.generation_text, out_));
    if (!in_.name.empty()) set("general.name", in_.name);
    set("general.size_label", in_.size_label);
    for (const GgufKey key : in_.architecture->keys) (this->*writer_of(key))();
    set("general.quantization_version", kQuantizationVersion);
    return std::move(out_);
  }

  double mscale_all_dim() const {
    const json* all = rope_member("mscale_all_dim");
    return all != nullptr && all->is_number() ? all->get<double>() : 0;
  }

 private:
  static uint32_t whole(int64_t value) { return static_cast<uint32_t>(value); }
  static float real(double value) { return static_cast<float>(value); }

  // Sets a key. One that is there already keeps its place.
  void set(std::string key, GgufValue value) {
    const auto found = std::ranges::find(out_, key, &GgufKeyValue::key);
    if (found == out_.end()) {
      out_.push_back({std::move(key), std::move(value)});
    } else {
      found->value = std::move(value);
    }
  }
  void own(std::string_view key, GgufValue value) {
    set(fmt::format("{}.{}", name_, key), std::move(value));
  }

  bool states(const char* key) const {
    const auto found = json_.find(key);
    return found != json_.end() && !found->is_null();
  }
  // Returns a number of the config, or 0.
  double number(const char* key) const {
    const auto found = json_.find(key);
    return found != json_.end() && found->is_number() ? found->get<double>() : 0;
  }
  // Returns a member of the RoPE object, or of full attention's where there are several; or
  // nullptr.
  const json* rope_member(const char* key) const {
    for (const char* name : {"rope_parameters", "rope_scaling"}) {
      const json* rope = member(json_, name);
      const json* full = rope == nullptr ? nullptr : member(*rope, "full_attention");
      for (const json* object : {full, rope}) {
        const json* found = object == nullptr ? nullptr : member(*object, key);
        if (found != nullptr) return found;
      }
    }
    return nullptr;
  }
  static const json* member(const json& object, const char* key) {
    const auto found = object.is_object() ? object.find(key) : object.end();
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }

  void add_blocks() { own("block_count", whole(c_.num_layers)); }
  void add_context() { own("context_length", whole(c_.max_positions)); }
  void add_embedding() { own("embedding_length", whole(c_.hidden_size)); }
  void add_feed_forward() {
    own("feed_forward_length", whole(in_.architecture->states_alone ? 0 : feed_forward_length()));
  }
  void add_heads() {
    own("attention.head_count", whole(in_.architecture->states_alone ? 0 : c_.num_heads));
  }
  void add_rms_epsilon() { own("attention.layer_norm_rms_epsilon", real(c_.rms_norm_eps)); }
  void add_layer_norm_epsilon() { own("attention.layer_norm_epsilon", real(c_.rms_norm_eps)); }
  void add_file_type() { set("general.file_type", gguf_file_type_number(in_.type, in_.has_mxfp4)); }
  void add_quantized_file_type() {
    if (gguf_file_type_info(in_.type).mixed) add_file_type();
  }
  void add_rope_dimension() { own("rope.dimension_count", whole(c_.rotary_dim())); }
  void add_rope_base() { own("rope.freq_base", real(c_.rope.theta)); }
  void add_vocabulary() { own("vocab_size", whole(c_.vocab_size)); }
  void add_logit_scale() { own("logit_scale", real(c_.scalars.logits)); }
  void add_clamp() {
    if (c_.scalars.qkv_clip) own("attention.clamp_kqv", real(*c_.scalars.qkv_clip));
  }
  void add_no_bos() { set("tokenizer.ggml.add_bos_token", false); }

  void add_standard() {
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

  // Without expert_gating_func readers assume a softmax in this architecture. They take groups only
  // if some of them are left out; where none is, there is one group as well.
  void add_expert_groups() {
    if (states("n_group") || c_.moe.groups > 1) {
      const bool chosen = c_.moe.top_groups < c_.moe.groups;
      own("expert_group_count", whole(chosen ? c_.moe.groups : 1));
      own("expert_group_used_count", whole(chosen ? c_.moe.top_groups : 1));
    }
    const bool sigmoid = in_.architecture->latent && has_sigmoids();
    if (states("scoring_func") || sigmoid) add_expert_gating();
  }
  bool has_sigmoids() const { return c_.moe.scores == MoeConfig::Scores::kSigmoid; }

  // Returns 0 where every layer has experts.
  int64_t feed_forward_length() const {
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

  void add_kv_heads() {
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
  void add_epsilon() {
    const bool layer_norm = in_.architecture->layer_norm && !states("norm_eps");
    layer_norm ? add_layer_norm_epsilon() : add_rms_epsilon();
  }

  void add_head_lengths() {
    own("attention.key_length", whole(c_.head_dim));
    own("attention.value_length", whole(c_.head_dim));
  }
  void add_stated_head_lengths() {
    states("head_dim") ? add_head_lengths() : add_other_head_lengths();
  }
  void add_other_head_lengths() {
    if (c_.head_dim * c_.num_heads != c_.hidden_size) add_head_lengths();
  }

  void add_rope() {
    if (c_.rope.type == Type::kLinear || c_.rope.type == Type::kYarn) {
      const bool yarn = c_.rope.type == Type::kYarn;
      own("rope.scaling.type", std::string(yarn ? "yarn" : "linear"));
      own("rope.scaling.factor", real(c_.rope.factor));
      if (yarn) add_yarn();
    }
    if (const std::vector<int32_t> sections = rope_sections(); !sections.empty()) {
      own("rope.dimension_sections", sections);
    }
    add_rope_base();
    if (in_.architecture->sliding_pattern) own("rope.freq_base_swa", real(c_.sliding_rope.theta));
  }

  // Writes values that the config states, and values for which readers would assume others.
  void add_yarn() {
    const RopeConfig usual;
    own("rope.scaling.original_context_length", whole(c_.rope.original_max_positions));
    if (rope_member("truncate") != nullptr || !c_.rope.truncate) {
      own("rope.scaling.yarn_truncate", c_.rope.truncate);
    }
    if (rope_member("attention_factor") != nullptr) {
      own("rope.scaling.yarn_attn_factor", real(c_.rope.attention_factor));
    }
    if (rope_member("beta_fast") != nullptr || c_.rope.beta_fast != usual.beta_fast) {
      own("rope.scaling.yarn_beta_fast", real(c_.rope.beta_fast));
    }
    if (rope_member("beta_slow") != nullptr || c_.rope.beta_slow != usual.beta_slow) {
      own("rope.scaling.yarn_beta_slow", real(c_.rope.beta_slow));
    }
  }

  void add_other_rope_base() {
    if (c_.rope.theta != RopeConfig().theta) add_rope_base();
  }
  void add_rope_scaling() {
    if (c_.rope.type == Type::kDefault) own("rope.scaling.type", std::string("none"));
  }
  // The base in the config has been scaled already. The length in the config is not that of the
  // model.
  void add_alpha_rope() {
    const json* type = rope_member("rope_type");
    if (type == nullptr || *type != "dynamic") return;
    own("rope.scaling.type", std::string("none"));
    own("rope.scaling.factor", 1.0F);
    own("rope.scaling.original_context_length", whole(kHunyuanPositions));
    own("context_length", whole(kHunyuanPositions));
  }
  // Readers divide their factor by one that follows from this key; the reference has both as one
  // factor.
  void add_yarn_multiplier() {
    if (c_.rope.type != Type::kYarn) return;
    own("rope.scaling.yarn_log_multiplier", real(gguf_yarn_multiplier(c_.rope)));
  }
  void add_query_growth() {
    if (c_.rope.query_growth != 0) {
      own("attention.temperature_scale", real(c_.rope.query_growth));
    }
  }

  // Returns the four sections for text and images. The positions of a text are equal in all of
  // them.
  std::vector<int32_t> rope_sections() const {
    const json* stated = rope_member("mrope_section");
    if (stated == nullptr) return {};
    std::vector<int32_t> sections;
    for (const json& part : *stated) {
      if (part.is_number_integer()) sections.push_back(part.get<int32_t>());
    }
    sections.resize(4);
    return sections;
  }

  void add_short_conv() {
    own("shortconv.l_cache", whole(static_cast<int64_t>(number("conv_L_cache"))));
  }

  void add_expert_sizes() {
    if (in_.architecture->has_key(GgufKey::kMambaSizes)) {
      own("expert_shared_feed_forward_length", whole(c_.intermediate_size));
      return;
    }
    if (c_.moe.experts == 0) return;
    add_expert_length();
    if (c_.moe.shared_size > 0 || states("shared_expert_intermediate_size")) {
      own("expert_shared_feed_forward_length", whole(c_.moe.shared_size));
    }
  }

  void add_expert_length() { own("expert_feed_forward_length", whole(c_.moe.expert_size)); }
  void add_shared_count() {
    own("expert_shared_count",
        whole(c_.moe.shared_size / std::max<int64_t>(c_.moe.expert_size, 1)));
  }
  void add_shared_length() {
    if (c_.moe.shared_size > 0) {
      own("expert_shared_feed_forward_length", whole(c_.moe.shared_size));
    }
  }
  void add_predicting_layers() { own("nextn_predict_layers", whole(0)); }
  void add_dense_blocks() {
    int64_t dense = 0;
    while (dense < c_.num_layers && !c_.has_experts(dense)) ++dense;
    own("leading_dense_block_count", whole(dense));
  }
  void add_expert_gating() {
    constexpr uint32_t kOfSoftmax = 1, kOfSigmoid = 2;
    own("expert_gating_func", has_sigmoids() ? kOfSigmoid : kOfSoftmax);
  }
  void add_expert_scale() { own("expert_weights_scale", real(c_.moe.scale)); }
  void add_expert_norm() { own("expert_weights_norm", c_.moe.norm_top_scores); }
  void add_expert_norm_if_any() {
    if (c_.moe.norm_top_scores) add_expert_norm();
  }

  // Writes the lengths of the one head that all share: its keys, and the latent vector, which is
  // its value.
  void add_latent_lengths() {
    own("attention.key_length", whole(c_.head_dim));
    own("attention.value_length", whole(c_.number("kv_lora_rank")));
  }
  void add_latent_sizes() {
    const int64_t queries = c_.number("q_lora_rank");
    if (queries > 0) own("attention.q_lora_rank", whole(queries));
    own("attention.kv_lora_rank", whole(c_.number("kv_lora_rank")));
    own("attention.key_length_mla", whole(c_.number("qk_nope_head_dim") + c_.rotary_dim()));
    own("attention.value_length_mla", whole(c_.number("v_head_dim")));
  }
  void add_latent_multiplier() {
    constexpr double kTenth = 0.1;
    if (rope_member("mscale_all_dim") == nullptr) return;
    own("rope.scaling.yarn_log_multiplier", real(kTenth * mscale_all_dim()));
  }

  void add_mamba_sizes() {
    own("ssm.conv_kernel", whole(c_.mamba.conv_kernel));
    own("ssm.state_size", whole(c_.mamba.state));
    own("ssm.group_count", whole(c_.mamba.groups));
    own("ssm.inner_size", whole(c_.mamba.inner()));
    own("ssm.time_step_rank", whole(c_.mamba.heads));
  }
  void add_state_sizes() {
    const MambaConfig& mamba = c_.mamba;
    own("ssm.conv_kernel", whole(mamba.conv_kernel));
    own("ssm.inner_size", whole(mamba.inner()));
    own("ssm.state_size", whole(mamba.state));
    own("ssm.time_step_rank", whole(mamba.rank > 0 ? mamba.rank : mamba.heads));
    if (mamba.rank == 0) own("ssm.group_count", whole(mamba.groups));
  }
  void add_inner_norms() { own("ssm.dt_b_c_rms", c_.mamba.inner_norms); }
  void add_expert_counts() {
    own("expert_count", whole(c_.moe.experts));
    add_experts_of_token();
  }
  void add_experts_of_token() { own("expert_used_count", whole(c_.moe.per_token)); }
  void add_expert_interval() {
    const auto stated = [&](const char* key) {  // both defaults of the class are 1
      return whole(states(key) ? static_cast<int64_t>(number(key)) : 1);
    };
    own("interleave_moe_layer_step", stated("moe_layer_interval"));
    own("leading_dense_block_count", stated("moe_layer_start_index"));
  }
  void add_expert_step() { own("interleave_moe_layer_step", whole(gguf_expert_step(c_))); }
  void add_turned() {
    constexpr int64_t kNoLimit = int64_t{1} << 20;
    own("rope.scaling.finetuned", c_.has_rope());
    if (!c_.has_rope()) own("context_length", whole(kNoLimit));
  }

  // Writes the number of layers that features of images are added to. Text models have none.
  void add_deepstack() {
    const json* vision = member(json_, "vision_config");
    const json* layers = vision == nullptr ? nullptr : member(*vision, "deepstack_visual_indexes");
    own("n_deepstack_layers",
        whole(layers != nullptr && layers->is_array() ? std::ssize(*layers) : 0));
  }

  void add_multipliers() {
    own("attention.scale",
        real(c_.scalars.attention.value_or(1 / std::sqrt(static_cast<double>(c_.head_dim)))));
    own("embedding_scale", real(c_.scalars.embedding));
    own("residual_scale", real(c_.scalars.residual));
    own("logit_scale",
        real(states("logits_scaling") ? number("logits_scaling") : 1 / c_.scalars.logits));
  }

  void add_score_softcap() {
    own("attn_logit_softcapping", real(c_.scalars.attention_softcap.value_or(0)));
  }
  void add_logit_softcap() {
    if (c_.scalars.logit_softcap) own("final_logit_softcapping", real(*c_.scalars.logit_softcap));
  }
  void add_window() {
    if (c_.sliding_window) own("attention.sliding_window", whole(*c_.sliding_window));
  }
  void add_window_or_none() {
    own("attention.sliding_window", whole(c_.sliding_window.value_or(0)));
  }
  void add_window_pattern() {
    if (!c_.sliding_window) return;
    std::vector<bool> sliding;
    for (const LayerType type : c_.layer_types) {
      sliding.push_back(type == LayerType::kSlidingAttention);
    }
    own("attention.sliding_window_pattern", sliding);
  }

  // The converter writes true where the config states nothing.
  void add_parallel_residual() {
    const json* stated = member(json_, "use_parallel_residual");
    own("use_parallel_residual",
        stated == nullptr || (stated->is_boolean() && stated->get<bool>()));
  }

  void add_linear_attention() {
    own("ssm.conv_kernel", whole(c_.linear.conv_kernel));
    own("ssm.state_size", whole(c_.linear.key_dim));
    own("ssm.group_count", whole(c_.linear.key_heads));
    own("ssm.time_step_rank", whole(c_.linear.value_heads));
    own("ssm.inner_size", whole(c_.linear.value_size()));
    std::vector<bool> recurrent;
    for (const LayerType type : c_.layer_types) {
      recurrent.push_back(type == LayerType::kLinearAttention);
    }
    own("attention.recurrent_layers", recurrent);
    const auto interval = static_cast<int64_t>(number("full_attention_interval"));
    own("full_attention_interval", whole(interval > 0 ? interval : 4));
    add_rope_dimension();
    // Readers of these architectures need the key in any case. The values are those of the
    // reference.
    if (name_.starts_with("qwen35") && rope_sections().empty()) {
      own("rope.dimension_sections", std::vector<int32_t>{11, 11, 10, 0});
    }
  }

  void add_original_context() {
    own("rope.scaling.original_context_length", whole(original_positions()));
  }
  int64_t original_positions() const {
    if (c_.rope.original_max_positions > 0) return c_.rope.original_max_positions;
    const json* found = rope_member("original_max_position_embeddings");
    if (found != nullptr && found->is_number_integer()) return found->get<int64_t>();
    const auto stated = static_cast<int64_t>(number("original_max_position_embeddings"));
    return stated > 0 ? stated : kPhi3Original;
  }

  void add_kinds_of_layers() {
    for (GgufKeyValue& key : kinds_of_layers_keys(c_)) own(key.key, std::move(key.value));
  }

  using Writer = void (Keys::*)();
  static Writer writer_of(GgufKey key) {
    using enum GgufKey;
    static constexpr std::pair<GgufKey, Writer> kWriters[] = {
        {kStandard, &Keys::add_standard},
        {kContext, &Keys::add_context},
        {kOriginalContext, &Keys::add_original_context},
        {kEmbedding, &Keys::add_embedding},
        {kBlocks, &Keys::add_blocks},
        {kFeedForward, &Keys::add_feed_forward},
        {kHeads, &Keys::add_heads},
        {kKvHeads, &Keys::add_kv_heads},
        {kRmsEpsilon, &Keys::add_rms_epsilon},
        {kLayerNormEpsilon, &Keys::add_layer_norm_epsilon},
        {kHeadLengths, &Keys::add_head_lengths},
        {kStatedHeadLengths, &Keys::add_stated_head_lengths},
        {kOtherHeadLengths, &Keys::add_other_head_lengths},
        {kFileType, &Keys::add_file_type},
        {kQuantizedFileType, &Keys::add_quantized_file_type},
        {kRopeDimension, &Keys::add_rope_dimension},
        {kRopeBase, &Keys::add_rope_base},
        {kOtherRopeBase, &Keys::add_other_rope_base},
        {kRopeScaling, &Keys::add_rope_scaling},
        {kAlphaRope, &Keys::add_alpha_rope},
        {kYarnMultiplier, &Keys::add_yarn_multiplier},
        {kQueryGrowth, &Keys::add_query_growth},
        {kVocabulary, &Keys::add_vocabulary},
        {kWindow, &Keys::add_window},
        {kWindowOrNone, &Keys::add_window_or_none},
        {kWindowPattern, &Keys::add_window_pattern},
        {kScoreSoftcap, &Keys::add_score_softcap},
        {kLogitSoftcap, &Keys::add_logit_softcap},
        {kLogitScale, &Keys::add_logit_scale},
        {kClamp, &Keys::add_clamp},
        {kMultipliers, &Keys::add_multipliers},
        {kExpertSizes, &Keys::add_expert_sizes},
        {kExpertLength, &Keys::add_expert_length},
        {kSharedCount, &Keys::add_shared_count},
        {kSharedLength, &Keys::add_shared_length},
        {kPredictingLayers, &Keys::add_predicting_layers},
        {kDenseBlocks, &Keys::add_dense_blocks},
        {kExpertGating, &Keys::add_expert_gating},
        {kExpertScale, &Keys::add_expert_scale},
        {kExpertNorm, &Keys::add_expert_norm},
        {kExpertNormIfAny, &Keys::add_expert_norm_if_any},
        {kLatentLengths, &Keys::add_latent_lengths},
        {kLatentSizes, &Keys::add_latent_sizes},
        {kLatentMultiplier, &Keys::add_latent_multiplier},
        {kMambaSizes, &Keys::add_mamba_sizes},
        {kStateSizes, &Keys::add_state_sizes},
        {kInnerNorms, &Keys::add_inner_norms},
        {kExpertCounts, &Keys::add_expert_counts},
        {kExpertsOfToken, &Keys::add_experts_of_token},
        {kExpertInterval, &Keys::add_expert_interval},
        {kExpertStep, &Keys::add_expert_step},
        {kTurned, &Keys::add_turned},
        {kLinearAttention, &Keys::add_linear_attention},
        {kShortConv, &Keys::add_short_conv},
        {kParallelBlocks, &Keys::add_parallel_residual},
        {kDeepstack, &Keys::add_deepstack},
        {kNoBos, &Keys::add_no_bos},
        {kKindsOfLayers, &Keys::add_kinds_of_layers}};
    return std::ranges::find(kWriters, key, &std::pair<GgufKey, Writer>::first)->second;
  }

  const GgufKeysInput& in_;
  const ModelConfig& c_;
  std::string_view name_;
  json json_;
  std::vector<GgufKeyValue> out_;
};

}  // namespace

Result<std::vector<GgufKeyValue>> gguf_model_keys(const GgufKeysInput& input) {
  return Keys(input, FERRY_TRY(merged_config(input))).run();
}

int64_t gguf_expert_step(const ModelConfig& config) {
  return std::ranges::find(config.moe.layers, true) - config.moe.layers.begin() + 1;
}

double gguf_mscale_all_dim(const GgufKeysInput& input) {
  const auto config = merged_config(input);
  return config ? Keys(input, *config).mscale_all_dim() : 0;
}

double gguf_yarn_multiplier(const RopeConfig& rope) {
  const double unit = 0.1 * std::log(rope.factor);
  return ((unit + 1) / rope.attention_factor - 1) / unit;
}

}  // namespace ferry::converters
