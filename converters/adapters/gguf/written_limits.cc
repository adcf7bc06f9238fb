// What readers of GGUF compute whatever a file says. Source: src/models of llama.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "converters/adapters/gguf/written_keys.h"
#include "core/text.h"

namespace ferry::converters {
namespace {

using Type = RopeConfig::Type;

constexpr int64_t kGlobalEvery = 6;     // gemma3
constexpr double kF32Tolerance = 1e-6;  // of numbers that readers compute in f32

class Limits {
 public:
  explicit Limits(const GgufKeysInput& input)
      : in_(input), a_(*input.architecture), c_(*input.config) {}

  Status check() const {
    FERRY_RETURN_IF_ERROR(check_model());
    FERRY_RETURN_IF_ERROR(check_rope());
    FERRY_RETURN_IF_ERROR(check_layers());
    if (a_.gemma) FERRY_RETURN_IF_ERROR(check_gemma());
    return c_.moe.experts > 0 ? check_experts() : Status();
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> lines;
    if (c_.multimodal) {
      lines.push_back(
          "the file has the text model alone: images need a projector file (mmproj), "
          "which Ferry does not write");
    }
    const bool ignored = !a_.gemma && c_.sliding_window && *c_.sliding_window < c_.max_positions;
    if (ignored) {
      lines.push_back(
          fmt::format("llama.cpp does not apply the sliding window of {}: its outputs "
                      "differ from position {} on",
                      *c_.sliding_window, *c_.sliding_window));
    }
    if (c_.rope.type == Type::kLongRope) {
      lines.push_back(
          fmt::format("llama.cpp takes the long RoPE factors where its context is "
                      "longer than {} tokens, however short the prompt is",
                      c_.rope.original_max_positions));
    }
    return lines;
  }

 private:
  tl::unexpected<Error> cannot(std::string_view field, std::string_view why) const {
    return fail(ErrorCode::kUnsupported,
                fmt::format("{}: '{}' {}: GGUF of the architecture '{}' cannot say it",
                            printable(in_.config_name), field, why, a_.name));
  }

  Status check_model() const {
    const Activation wanted = a_.gemma ? Activation::kGeluTanh : Activation::kSilu;
    if (c_.activation != wanted) return cannot("hidden_act", "is another activation");
    const bool own_lengths = a_.name != "phi3" && a_.name != "granite" && a_.name != "lfm2";
    if (!own_lengths && c_.head_dim * c_.num_heads != c_.hidden_size) {
      return cannot("head_dim", "is not the hidden size divided by the heads");
    }
    if (a_.linear_attention && c_.linear.key_dim != c_.linear.value_dim) {
      return cannot("linear_value_head_dim", "is not linear_key_head_dim");
    }
    return {};
  }

  Status check_rope() const {
    const RopeConfig& rope = c_.rope;
    const bool has_blocks = a_.name != "gemma2" && a_.name != "phi3" && a_.name != "chatglm";
    if (rope.type == Type::kLongRope && a_.name != "phi3") {
      return cannot("rope_parameters", "is longrope");
    }
    const bool scaled =
        rope.type == Type::kLinear || rope.type == Type::kYarn || rope.type == Type::kLlama3;
    if (scaled && !has_blocks) return cannot("rope_parameters", "scales RoPE");
    if (rope.type == Type::kLlama3 && a_.name != "llama" && a_.name != "smollm3" &&
        a_.name != "granite" && a_.name != "mistral3") {
      return cannot("rope_parameters", "is llama3");
    }
    if (rope.type == Type::kYarn) FERRY_RETURN_IF_ERROR(check_yarn());
    const bool partial = a_.partial_rotary || a_.linear_attention || a_.name == "chatglm";
    if (!partial && c_.rotary_dim() != c_.head_dim) {
      return cannot("partial_rotary_factor", "turns a part of each head");
    }
    return {};
  }

  // Readers multiply by 0.1 ln(factor) + 1 themselves.
  Status check_yarn() const {
    const double usual = 0.1 * std::log(c_.rope.factor) + 1;
    if (std::abs(c_.rope.attention_factor - usual) > kF32Tolerance * usual) {
      return cannot("rope_parameters.attention_factor", "is not 0.1 ln(factor) + 1");
    }
    if (!c_.rope.truncate) return cannot("rope_parameters.truncate", "is false");
    return {};
  }

  Status check_layers() const {
    for (int64_t i = 0; i < c_.num_layers; ++i) {
      const auto at = static_cast<size_t>(i);
      const bool turned = c_.rope_layers.empty() || c_.rope_layers[at];
      const bool is_turned = a_.no_rope_interval == 0 || (i + 1) % a_.no_rope_interval != 0;
      if (is_attention(c_.layer_types[at]) && turned != is_turned) {
        return cannot("no_rope_layers", fmt::format("differs in layer {}", i));
      }
      const bool slides = c_.layer_types[at] == LayerType::kSlidingAttention;
      const bool is_sliding = a_.name == "gemma2" ? i % 2 == 0 : (i + 1) % kGlobalEvery != 0;
      if (a_.gemma && slides != is_sliding) {
        return cannot("layer_types", fmt::format("differs in layer {}", i));
      }
    }
    return {};
  }

  Status check_gemma() const {
    const bool by_hidden = c_.num_layers == a_.layers_scaled_by_hidden;
    const double wanted =
        1 / std::sqrt(static_cast<double>(by_hidden ? c_.hidden_size / c_.num_heads : c_.head_dim));
    const double scale =
        c_.scalars.attention.value_or(1 / std::sqrt(static_cast<double>(c_.head_dim)));
    if (std::abs(scale - wanted) > kF32Tolerance * wanted) {
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

  Status check_experts() const {
    if (c_.moe.norm_top_scores != a_.normed_experts) {
      return cannot("norm_topk_prob", fmt::format("is {}", c_.moe.norm_top_scores));
    }
    for (int64_t i = 0; i < c_.num_layers; ++i) {
      if (!c_.has_experts(i)) return cannot("mlp_only_layers", fmt::format("names layer {}", i));
    }
    return {};
  }

  const GgufKeysInput& in_;
  const GgufArchitecture& a_;
  const ModelConfig& c_;
};

}  // namespace

Status check_gguf_limits(const GgufKeysInput& input) { return Limits(input).check(); }

std::vector<std::string> gguf_limit_notes(const GgufKeysInput& input) {
  return Limits(input).notes();
}

}  // namespace ferry::converters
