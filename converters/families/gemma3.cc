// Gemma 3, text part: of text checkpoints and of multimodal ones, whose vision tower is left out.
// Gemma 2 without score softcap, with norms of q and k by (1 + w), and with a RoPE of its own in
// the sliding layers. Source: transformers, models/gemma3/modeling_gemma3.py.

#include "converters/blocks/decoder.h"
#include "converters/blocks/gemma.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families {
namespace {

std::vector<KeyRule> rules_below(const std::string& prefix, const ModelConfig& config) {
  return concat(
      {gemma_rules(prefix, config),
       shifted_norm_rules(
           prefix,
           {{"layers.{i}.self_attn.q_norm.weight", "layers.{i}.attention.q_norm.weight"},
            {"layers.{i}.self_attn.k_norm.weight", "layers.{i}.attention.k_norm.weight"}})});
}

std::vector<KeyRule> rules(const ModelConfig& config) {
  constexpr const char* kVision = "vision: only the text part is built";
  return concat({rules_below("model.", config),
                 rules_below("model.language_model.", config),
                 rules_below("language_model.model.", config),
                 {head_rule(), head_rule("language_model.lm_head.weight"),
                  drop_rule("model.vision_tower.*", kVision), drop_rule("vision_tower.*", kVision),
                  drop_rule("model.multi_modal_projector.*", kVision),
                  drop_rule("multi_modal_projector.*", kVision)}});
}

Result<graph::Graph> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options,
                                 {.qkv_bias = config.attention_bias,
                                  .output_bias = config.attention_bias,
                                  .qk_norm = AttentionStyle::QkNorm::kHead},
                                 {.before = true, .after = true});
}

}  // namespace

const FamilySpec kGemma3 = {.model_types = {"gemma3_text", "gemma3"},
                            .rules = rules,
                            .ties = standard_ties,
                            .build = build};

}  // namespace ferry::converters::families
