// The RoPE that readers of GGUF assume whatever a file says. Source: src/models and ggml_rope_ext()
// of llama.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "converters/blocks/rope.h"
#include "dialects/gguf/model/written_keys.h"

namespace ferry::converters {
namespace {

using Type = RopeConfig::Type;

class RopeLimits {
 public:
  explicit RopeLimits(const GgufKeysInput& input)
      : in_(input), a_(*input.architecture), c_(*input.config) {}

  Status check() const {
    const RopeConfig& rope = c_.rope;
    const bool has_scaling = a_.has_key(GgufKey::kStandard);
    if (rope.type == Type::kLongRope && a_.name != "phi3") {
      return cannot("rope_parameters", "is longrope");
    }
    const bool scaled =
        rope.type == Type::kLinear || rope.type == Type::kYarn || rope.type == Type::kLlama3;
    if (scaled && !has_scaling) return cannot("rope_parameters", "scales RoPE");
    if (rope.type == Type::kLlama3 && !a_.rope_factors) {
      return cannot("rope_parameters", "is llama3");
    }
    if (c_.sliding_window) FERRY_RETURN_IF_ERROR(check_sliding_rope());
    if (scaled && a_.latent) return check_latent_rope();
    if (rope.type == Type::kYarn) FERRY_RETURN_IF_ERROR(check_yarn());
    if (rope.query_growth != 0 && rope.type != Type::kYarn) {
      return cannot("rope_parameters.llama_4_scaling_beta", "stands without yarn");
    }
    const bool partial = a_.partial_rotary || a_.linear_attention || a_.latent || a_.turns_nothing;
    if (!partial && c_.rotary_dim() != c_.heads_of(LayerType::kFullAttention).dim) {
      return cannot("partial_rotary_factor", "turns a part of each head");
    }
    return check_sections();
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> lines;
    if (c_.rope.type == Type::kYarn && !c_.rope.truncate) {
      lines.push_back(
          "llama.cpp rounds the bounds of yarn to whole pairs, whatever the file says: its "
          "frequencies differ");
    }
    if (c_.rope.type == Type::kYarn && a_.name == "gpt-oss" && !has_usual_bounds()) {
      lines.push_back(
          "llama.cpp takes 32 and 1 for beta_fast and beta_slow of yarn: its frequencies differ");
    }
    if (const std::vector<size_t> pairs = unturned_pairs(); !pairs.empty()) {
      lines.push_back(
          fmt::format("llama.cpp does not apply RoPE to the pairs of dimensions {}, which "
                      "mrope_section leaves to the first position: they turn by less than a radian "
                      "in {} tokens",
                      fmt::join(pairs, ", "), c_.max_positions));
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
  Failure cannot(std::string_view field, std::string_view why) const {
    return gguf_cannot_say(in_, field, why);
  }

  // Returns the pairs of dimensions that readers leave to a fourth position, which is always 0.
  // They deal pairs to the three sections in turn, as long as a section has pairs left, and begin
  // again behind the last one. The reference gives the first position what the other two leave.
  // Source: ggml_mrope_cache_init() of llama.cpp.
  std::vector<size_t> unturned_pairs() const {
    std::vector<size_t> pairs;
    if (!a_.interleaved_sections) return pairs;
    const std::vector<int32_t> sections = gguf_rope_sections(in_);
    if (sections.empty()) return pairs;
    int64_t sum = 0;
    for (const int32_t section : sections) sum += section;
    for (int64_t pair = 0; pair < c_.rotary_dim() / 2; ++pair) {
      // Positions of a text are equal in all sections, so that it may begin them again.
      const bool known = sum > 0 && (pair < sum || !c_.multimodal);
      const int64_t place = known ? pair % sum : 0;
      const bool turned = known && place < 3 * int64_t{sections[static_cast<size_t>(place % 3)]};
      if (!turned) pairs.push_back(static_cast<size_t>(pair));
    }
    return pairs;
  }

  // A released model has such pairs, whose frequencies are so low that a note will do.
  Status check_sections() const {
    const std::vector<float> frequencies = rope_inverse_frequencies(c_.rope, c_.rotary_dim());
    for (const size_t pair : unturned_pairs()) {
      if (frequencies[pair] * static_cast<float>(c_.max_positions) < 1) continue;
      return cannot(
          "rope_parameters.mrope_section",
          fmt::format("is such that readers do not turn pair {} of the dimensions", pair));
    }
    return {};
  }

  // gemma3 has a key for the base of sliding attention's RoPE.
  Status check_sliding_rope() const {
    RopeConfig wanted = c_.rope;
    if (a_.plain_windows) wanted = {.theta = c_.rope.theta};
    const bool same = rope_inverse_frequencies(c_.sliding_rope, c_.rotary_dim()) ==
                          rope_inverse_frequencies(wanted, c_.rotary_dim()) &&
                      c_.sliding_rope.attention_factor == wanted.attention_factor;
    const bool has_base = a_.sliding_pattern || a_.has_key(GgufKey::kSlidingRopeBase);
    if (same || (has_base && c_.sliding_rope.type == Type::kDefault)) return {};
    return cannot("rope_parameters.sliding_attention", "differs from what readers take");
  }

  // Readers multiply by 0.1 ln(factor) + 1 of their own accord. The keys of other bounds than the
  // usual ones are read in mistral3 alone.
  Status check_yarn() const {
    const bool has_multiplier = a_.has_key(GgufKey::kYarnMultiplier);
    FERRY_RETURN_IF_ERROR(has_multiplier ? Status() : check_yarn_bounds());
    const double usual = 0.1 * std::log(c_.rope.factor) + 1;
    if (!has_multiplier && std::abs(c_.rope.attention_factor - usual) > kGgufTolerance * usual) {
      return cannot("rope_parameters.attention_factor", "is not 0.1 ln(factor) + 1");
    }
    if (has_multiplier && gguf_yarn_multiplier(c_.rope) < 0) {
      return cannot("rope_parameters.attention_factor", "is more than 0.1 ln(factor) + 1");
    }
    return {};
  }

  bool has_usual_bounds() const {
    const RopeConfig usual;
    return c_.rope.beta_fast == usual.beta_fast && c_.rope.beta_slow == usual.beta_slow;
  }

  // A note tells it for gpt_oss, whose frequencies readers round in any case.
  Status check_yarn_bounds() const {
    if (has_usual_bounds() || a_.name == "gpt-oss") return {};
    return cannot("rope_parameters.beta_fast", "is not 32, or beta_slow not 1");
  }

  // Readers use the factor of yarn for cos and sin as the factor of scores, and mscale_all_dim for
  // both.
  Status check_latent_rope() const {
    if (c_.rope.type != Type::kYarn) return cannot("rope_parameters", "scales RoPE without yarn");
    if (gguf_mscale_all_dim(in_) == 0) {
      return cannot("rope_parameters.mscale_all_dim", "is missing or 0");
    }
    FERRY_RETURN_IF_ERROR(check_yarn_bounds());
    if (std::abs(c_.rope.attention_factor - 1) <= kGgufTolerance) return {};
    return cannot("rope_parameters.mscale", "is not mscale_all_dim");
  }

  const GgufKeysInput& in_;
  const GgufArchitecture& a_;
  const ModelConfig& c_;
};

}  // namespace

Status check_gguf_rope_limits(const GgufKeysInput& input) { return RopeLimits(input).check(); }

std::vector<std::string> gguf_rope_notes(const GgufKeysInput& input) {
  return RopeLimits(input).notes();
}

}  // namespace ferry::converters
