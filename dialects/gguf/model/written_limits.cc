// The values that readers of GGUF assume whatever a file says. Source: src/models of llama.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "converters/blocks/layer_inputs.h"
#include "converters/blocks/shared_layers.h"
#include "core/text.h"
#include "dialects/gguf/model/encoder.h"
#include "dialects/gguf/model/layer_kinds.h"
#include "dialects/gguf/model/written_keys.h"

namespace ferry::converters {
namespace {

using Type = RopeConfig::Type;

constexpr int64_t kGlobalEvery = 6;        // gemma3
constexpr int64_t kGemma2GlobalEvery = 2;  // gemma2

class Limits {
 public:
  explicit Limits(const GgufKeysInput& input)
      : in_(input), a_(*input.architecture), c_(*input.config) {}

  Status check() const {
    FERRY_RETURN_IF_ERROR(check_model());
    FERRY_RETURN_IF_ERROR(check_gguf_rope_limits(in_));
    FERRY_RETURN_IF_ERROR(check_layers());
    if (a_.own_keys == GgufOwnKeys::kLatentAttention) FERRY_RETURN_IF_ERROR(check_latent());
    if (a_.has_key(GgufKey::kMambaSizes)) FERRY_RETURN_IF_ERROR(check_mamba());
    if (a_.has_key(GgufKey::kStateSizes)) FERRY_RETURN_IF_ERROR(check_states());
    if (a_.gemma) FERRY_RETURN_IF_ERROR(check_gemma());
    FERRY_RETURN_IF_ERROR(check_gguf_model_limits(in_));
    if (has_kinds_of_layers()) FERRY_RETURN_IF_ERROR(check_kinds_of_layers());
    return c_.moe.experts > 0 ? check_experts() : Status();
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> lines;
    if (c_.hears_rows() && !c_.vision) {
      lines.push_back("the file has the text model alone: it takes no sounds");
    } else if (c_.multimodal) {
      lines.push_back(
          "the file has the text model alone: images need a projector, which --to mmproj writes "
          "of the models that llama.cpp has one for");
    }
    if (const auto window = ignored_window()) {
      lines.push_back(
          fmt::format("llama.cpp does not apply the sliding window of {0}: the file states a "
                      "context of {0} tokens, up to which it computes the same",
                      *window));
    }
    const bool gelu_head =
        c_.classifier && c_.classifier->steps.front().activation == Activation::kGelu;
    if (a_.rough_gelu && (c_.activation == Activation::kGelu || gelu_head)) {
      lines.push_back("llama.cpp approximates GELU, which the model computes exactly");
    }
    if (c_.sentence && c_.sentence->modules.empty()) {
      lines.push_back(
          "runtimes of GGUF bring vectors to a length of 1 unless they are told otherwise, which "
          "the checkpoint does not");
    }
    if (a_.own_keys == GgufOwnKeys::kGemma3n) {
      lines.push_back(
          "llama.cpp divides the variance of activations by one less than the model does");
    }
    if (c_.classifier) {
      lines.push_back(
          "no key of GGUF says how scores are made of the outputs of a head of labels: runtimes "
          "give the outputs");
    }
    if (c_.classifier && c_.number(kTokenTypes) > 1) {
      lines.push_back(
          "llama.cpp gives all tokens the type 0, also those of the second text of a pair");
    }
    if (c_.mamba.least_step > 0) {
      lines.push_back(
          fmt::format("llama.cpp does not raise time steps to {}", c_.mamba.least_step));
    }
    for (std::string& line : gguf_rope_notes(in_)) lines.push_back(std::move(line));
    return lines;
  }

  bool has_usual_windows() const {
    for (int64_t i = 0; i < c_.num_layers; ++i) {
      const bool slides = c_.layer_types[static_cast<size_t>(i)] == LayerType::kSlidingAttention;
      if (slides != slides_usually(i)) return false;
    }
    return true;
  }

  // Returns the window of models whose windows readers do not apply.
  std::optional<int64_t> ignored_window() const {
    const bool ignored = window_interval() == 0 && !has_kinds_of_layers() && !a_.lists_windows;
    if (!ignored || c_.sliding_window.value_or(c_.max_positions) >= c_.max_positions) return {};
    return c_.sliding_window;
  }

 private:
  Failure cannot(std::string_view field, std::string_view why) const {
    return gguf_cannot_say(in_, field, why);
  }

  Status check_model() const {
    if (c_.is_encoder) FERRY_RETURN_IF_ERROR(check_encoder());
    const bool rough = a_.rough_gelu && c_.activation == Activation::kGelu;
    const bool stated =
        a_.has_key(GgufKey::kHiddenActivation) && c_.activation == Activation::kSilu;
    if (c_.activation != a_.activation && !rough && !stated) {
      return cannot("hidden_act", "is another activation");
    }
    if (a_.needs_experts && c_.moe.experts == 0) return cannot("num_experts", "or none is used");
    if (a_.tied_head && !c_.tie_word_embeddings) return cannot("tie_word_embeddings", "is false");
    if (a_.equal_heads && c_.head_dim * c_.num_heads != c_.hidden_size) {
      return cannot("head_dim", "is not the hidden size divided by the heads");
    }
    if (a_.no_shared_heads && c_.num_kv_heads != c_.num_heads) {
      return cannot("num_key_value_heads", "is not num_attention_heads");
    }
    const bool has_norms = c_.number("qk_norm") > 0;
    if (a_.qk_norm_layers > 0 && has_norms != (c_.num_layers >= a_.qk_norm_layers)) {
      return cannot("use_qk_norm", fmt::format("is {} with {} layers", has_norms, c_.num_layers));
    }
    const double root = std::sqrt(static_cast<double>(c_.hidden_size));
    if (a_.scaled_embedding && c_.scalars.embedding != root) {
      return cannot("mup_enabled", "is false");
    }
    const bool by_config = a_.own_keys == GgufOwnKeys::kMpt || a_.own_keys == GgufOwnKeys::kT5;
    if (a_.turns_nothing && c_.scalars.attention && !by_config)
      return cannot("scale_attn_weights", "is false");
    constexpr const char* kByLayer = "scale_attn_by_inverse_layer_idx";
    if (c_.number(kByLayer) != 0) return cannot(kByLayer, "is true");
    constexpr const char* kOfNorm = "apply_residual_connection_post_layernorm";
    if (c_.number(kOfNorm) != 0) return cannot(kOfNorm, "is true");
    if (a_.own_keys == GgufOwnKeys::kDbrx && !c_.scalars.qkv_clip) {
      return cannot("clip_qkv", "is null");
    }
    if (c_.scalars.qkv_clip && !a_.has_key(GgufKey::kClamp))
      return cannot("clip_qkv", "limits queries, keys and values");
    if (a_.name == "starcoder" && c_.num_kv_heads != 1) return cannot("multi_query", "is false");
    if (a_.linear_attention && c_.linear.key_dim != c_.linear.value_dim) {
      return cannot("linear_value_head_dim", "is not linear_key_head_dim");
    }
    if (a_.linear_attention && !has_layer(LayerType::kFullAttention)) {
      return cannot("layer_types", "has no layer of full attention");
    }
    return {};
  }

  Status check_encoder() const {
    if (!a_.has_key(GgufKey::kNotCausal) && !a_.has_key(GgufKey::kHalfWindow)) {
      return cannot("model_type", "is built as an encoder");
    }
    const std::string head = c_.classifier ? gguf_head_obstacle(*c_.classifier, a_) : "";
    if (!head.empty()) return cannot("architectures", head);
    const std::string obstacle = c_.sentence ? gguf_sentence_obstacle(*c_.sentence, c_, a_) : "";
    return obstacle.empty() ? Status() : cannot("modules.json", obstacle);
  }

  Status check_layers() const {
    const bool has_windows = c_.sliding_window.has_value();
    if (a_.window_layers > 0 && has_windows != (c_.num_layers == a_.window_layers)) {
      return cannot("sliding_window", fmt::format("is {} with {} layers",
                                                  has_windows ? "stated" : "null", c_.num_layers));
    }
    for (int64_t i = 0; i < c_.num_layers; ++i) {
      const auto at = static_cast<size_t>(i);
      const bool slides = c_.layer_types[at] == LayerType::kSlidingAttention;
      const bool turned = c_.rope_layers.empty() || c_.rope_layers[at];
      bool is_turned = a_.no_rope_interval == 0 || (i + 1) % a_.no_rope_interval != 0;
      if (a_.turns_windows && c_.sliding_window) is_turned = slides;
      if (a_.turns_dense && !c_.has_experts(i)) is_turned = true;
      if (a_.turns_nothing) is_turned = false;
      // In granitemoe the key has no effect.
      if (a_.has_key(GgufKey::kTurned)) is_turned = c_.has_rope() || a_.name == "granitemoe";
      if (is_attention(c_.layer_types[at]) && turned != is_turned) {
        return cannot("no_rope_layers", fmt::format("differs in layer {}", i));
      }
      if (lists_other_windows() || slides == slides_usually(i)) continue;
      return cannot("layer_types", fmt::format("differs in layer {}", i));
    }
    return {};
  }

  // Whether a key lists the layers with a window where they are not the usual ones.
  bool lists_other_windows() const {
    return a_.has_key(GgufKey::kOtherWindows) && c_.sliding_window;
  }

  // Whether readers apply a window in the layer; that of the config where they take its word.
  bool slides_usually(int64_t layer) const {
    const int64_t every = window_interval();
    return every > 0 ? (layer + 1) % every != 0
                     : c_.layer_types[static_cast<size_t>(layer)] == LayerType::kSlidingAttention;
  }

  // Returns n where all but every n-th layer have the window of the file; 0 where readers apply
  // none.
  int64_t window_interval() const {
    if (has_kinds_of_layers() || a_.lists_windows) return 0;  // the file lists them
    if (a_.sliding_pattern) return kGlobalEvery;
    if (a_.has_key(GgufKey::kWindowPattern) && !c_.sliding_window) return 0;
    return a_.gemma ? kGemma2GlobalEvery : a_.window_every;
  }

  Status check_gemma() const {
    const bool by_hidden = c_.num_layers == a_.layers_scaled_by_hidden;
    const double wanted =
        1 / std::sqrt(static_cast<double>(by_hidden ? c_.hidden_size / c_.num_heads : c_.head_dim));
    const double scale =
        c_.scalars.attention.value_or(1 / std::sqrt(static_cast<double>(c_.head_dim)));
    if (std::abs(scale - wanted) > kGgufTolerance * wanted) {
      return cannot(
          "query_pre_attn_scalar",
          fmt::format("is not {}", by_hidden ? "hidden_size / num_attention_heads" : "head_dim"));
    }
    const bool caps = a_.name == "gemma2";
    if (caps && (!c_.scalars.attention_softcap || !c_.scalars.logit_softcap)) {
      return cannot("attn_logit_softcapping, final_logit_softcapping", "are not both there");
    }
    if (!caps && c_.scalars.attention_softcap) {
      return cannot("attn_logit_softcapping", "caps scores");
    }
    if (!caps && c_.sliding_rope.type != Type::kDefault) {
      return cannot("rope_parameters.sliding_attention", "scales RoPE");
    }
    return {};
  }

  bool has_kinds_of_layers() const { return a_.own_keys == GgufOwnKeys::kKindsOfLayers; }

  Status check_kinds_of_layers() const {
    if (!c_.sliding_window) return cannot("layer_types", "has no layer with a window");
    if (c_.rope.type != Type::kProportional && c_.rope.type != Type::kDefault) {
      return cannot("rope_parameters.full_attention", "scales RoPE");
    }
    if (c_.sliding_rope.type != Type::kDefault) {
      return cannot("rope_parameters.sliding_attention", "is not the default");
    }
    const int64_t first = first_shared_layer(c_);
    std::vector<bool> slides;
    for (const LayerType type : c_.layer_types) {
      slides.push_back(type == LayerType::kSlidingAttention);
    }
    if (first < 2 || (first < c_.num_layers && !takes_last_two_keys(slides, first))) {
      return cannot("num_kv_shared_layers",
                    fmt::format("is {}: the layers before them are not one with a window and one "
                                "of full attention",
                                c_.num_layers - first));
    }
    if (c_.number(kLayerInputSize) > 0 && c_.number(kLayerVocab) != c_.vocab_size) {
      return cannot("vocab_size_per_layer_input", "is not vocab_size");
    }
    return {};
  }

  // Readers expect queries without a rank in models of 26 and 27 layers, and in no others.
  Status check_latent() const {
    constexpr double kEpsilon = 1e-6;  // the reference's epsilon for latent vectors
    const bool has_rank = c_.number("q_lora_rank") > 0;
    const bool is_lite = c_.num_layers == 26 || c_.num_layers == 27;
    if (has_rank == is_lite) {
      return cannot("q_lora_rank", fmt::format("is {} with {} layers", has_rank ? "stated" : "null",
                                               c_.num_layers));
    }
    if (c_.number("paired_rope") == 0) return cannot("rope_interleave", "is false");
    if (std::abs(c_.rms_norm_eps - kEpsilon) > kGgufTolerance * kEpsilon) {
      return cannot("rms_norm_eps", "is not 1e-6, which that of latent vectors is");
    }
    return {};
  }

  // Readers normalise each group by itself, and need a bias.
  Status check_mamba() const {
    if (a_.without_heads.empty() || !has_layer(LayerType::kMamba)) return {};
    if (c_.mamba.groups > 1) return cannot("mamba_n_groups", "is more than 1");
    if (!c_.mamba.conv_bias) return cannot("mamba_conv_bias", "is false");
    if (c_.mamba.greatest_step) return cannot("time_step_limit", "limits time steps");
    return {};
  }
  // Readers need a bias of the convolution, and twice as many channels as the hidden size has. They
  // have one epsilon for all norms, and no limit of time steps.
  Status check_states() const {
    const MambaConfig& mamba = c_.mamba;
    if (!mamba.conv_bias) return cannot("use_conv_bias", "is false");
    if (mamba.activation != Activation::kSilu) return cannot("hidden_act", "is not silu");
    if (mamba.least_step > 0 || mamba.greatest_step) {
      return cannot("time_step_limit", "limits time steps");
    }
    if (mamba.inner_norms && mamba.norm_eps != c_.rms_norm_eps) {
      return cannot("mixer_rms_eps", "is not layer_norm_epsilon");
    }
    if (mamba.rank == 0 || mamba.inner() == 2 * c_.hidden_size) return {};
    return cannot("expand", "is not 2");
  }
  bool has_layer(LayerType type) const { return std::ranges::count(c_.layer_types, type) > 0; }

  Status check_experts() const {
    const bool says_norm =
        a_.has_key(GgufKey::kExpertNorm) || a_.has_key(GgufKey::kExpertNormIfAny);
    if (!says_norm && c_.moe.norm_top_scores != a_.normed_experts) {
      return cannot("norm_topk_prob", fmt::format("is {}", c_.moe.norm_top_scores));
    }
    if (!a_.has_key(GgufKey::kExpertScale) && c_.moe.scale != 1) {
      return cannot("routed_scaling_factor", "is not 1");
    }
    if (c_.moe.groups > c_.moe.top_groups && c_.moe.group_best != 2) {
      return cannot("topk_method", "scores a group of experts by the best one");
    }
    if (c_.moe.clamp && *c_.moe.clamp != MoeConfig::Clamp{.steepness = 1.702, .limit = 7.0}) {
      return cannot("swiglu_alpha", "or swiglu_limit is not what readers take");
    }
    if (a_.has_key(GgufKey::kShortConv) && !c_.moe.choice_bias) {
      return cannot("use_expert_bias", "is false");
    }
    if (a_.has_key(GgufKey::kExpertStep)) return check_expert_step();
    if (a_.has_key(GgufKey::kExpertInterval)) return check_expert_interval();
    if (a_.has_key(GgufKey::kExpertCounts) || a_.has_key(GgufKey::kMimoHeads)) return {};
    int64_t first = 0;
    while (a_.has_key(GgufKey::kDenseBlocks) && !c_.has_experts(first)) ++first;
    for (int64_t i = first; i < c_.num_layers; ++i) {
      if (!c_.has_experts(i)) return cannot("mlp_only_layers", fmt::format("names layer {}", i));
    }
    return {};
  }

  // The layers with experts are those that the key of the step meets.
  Status check_expert_step() const {
    const int64_t step = gguf_expert_step(c_);
    for (int64_t i = 0; i < c_.num_layers; ++i) {
      if (c_.has_experts(i) == ((i + 1) % step == 0)) continue;
      return cannot("moe_layers", fmt::format("is not every {}. layer", step));
    }
    return {};
  }

  // The last layer with experts is the last one that the interval meets. Readers add nothing to the
  // sum of scores, and limit it from below by less than any sum can be.
  Status check_expert_interval() const {
    constexpr double kLeast = 1e-5;
    if (c_.moe.least_norm > kLeast) return cannot("moe_norm_min", "limits sums of scores");
    int64_t last = 0;
    for (int64_t i = 0; i < c_.num_layers; ++i) {
      if (c_.has_experts(i)) last = i;
    }
    int64_t before = last - 1;
    while (before >= 0 && !c_.has_experts(before)) --before;
    const int64_t next = before < 0 ? last + 1 : last + (last - before);
    if (next >= c_.num_layers) return {};
    return cannot("moe_layer_end_index", fmt::format("ends experts in layer {}", last));
  }

  const GgufKeysInput& in_;
  const GgufArchitecture& a_;
  const ModelConfig& c_;
};

}  // namespace

Failure gguf_cannot_say(const GgufKeysInput& input, std::string_view field, std::string_view why) {
  return fail(ErrorCode::kUnsupported,
              fmt::format("{}: '{}' {}: GGUF of the architecture '{}' cannot say it",
                          printable(input.config_name), field, why, input.architecture->name));
}

Status check_gguf_limits(const GgufKeysInput& input) { return Limits(input).check(); }

bool gguf_has_usual_windows(const GgufKeysInput& input) {
  return Limits(input).has_usual_windows();
}

std::optional<int64_t> gguf_ignored_window(const GgufKeysInput& input) {
  return Limits(input).ignored_window();
}

std::vector<std::string> gguf_limit_notes(const GgufKeysInput& input) {
  return Limits(input).notes();
}

}  // namespace ferry::converters
