// LFM2: gated short convolutions in most layers, attention with normed q and k in the others.
// Source: transformers, models/lfm2/modeling_lfm2.py.

#include <fmt/format.h>

#include "converters/blocks/decoder.h"
#include "converters/blocks/short_conv.h"
#include "converters/config/ranges.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::lfm2 {
namespace {

constexpr FloatRange kMultiplierRange = {1e-3, 1e3};

// The MLP has two thirds of the stated size, times a multiplier, rounded up to a multiple.
Status read(const JsonFields& fields, ModelConfig& config) {
  config.numbers[kConvKernel] = FERRY_TRY(fields.required("conv_L_cache", kConvRange));
  config.numbers[kConvBias] = FERRY_TRY(fields.flag_or("conv_bias", false)) ? 1 : 0;
  if (!FERRY_TRY(fields.flag_or("block_auto_adjust_ff_dim", true))) return {};
  config.intermediate_size = 2 * config.intermediate_size / 3;
  const auto multiplier = FERRY_TRY(fields.number("block_ffn_dim_multiplier", kMultiplierRange));
  if (multiplier) {
    const int64_t multiple = FERRY_TRY(fields.required("block_multiple_of", kSizeRange));
    const auto scaled =
        static_cast<int64_t>(*multiplier * static_cast<double>(config.intermediate_size));
    config.intermediate_size = multiple * ((scaled + multiple - 1) / multiple);
  }
  if (config.intermediate_size >= kSizeRange.min && config.intermediate_size <= kSizeRange.max) {
    return {};
  }
  return fields.bad("intermediate_size",
                    fmt::format("becomes {} by the block_ settings", config.intermediate_size));
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  std::vector<KeyRule> rules = rename_rules(
      prefix, {{"embed_tokens.weight", "tok_embeddings.weight"},
               {"embedding_norm.weight", "norm.weight"},
               {"layers.{i}.operator_norm.weight", "layers.{i}.attention_norm.weight"},
               {"layers.{i}.ffn_norm.weight", "layers.{i}.ffn_norm.weight"},
               {"layers.{i}.feed_forward.w1.weight", "layers.{i}.feed_forward.w1.weight"},
               {"layers.{i}.feed_forward.w2.weight", "layers.{i}.feed_forward.w2.weight"},
               {"layers.{i}.feed_forward.w3.weight", "layers.{i}.feed_forward.w3.weight"},
               {"layers.{i}.self_attn.q_proj.weight", "layers.{i}.attention.wq.weight"},
               {"layers.{i}.self_attn.k_proj.weight", "layers.{i}.attention.wk.weight"},
               {"layers.{i}.self_attn.v_proj.weight", "layers.{i}.attention.wv.weight"},
               {"layers.{i}.self_attn.out_proj.weight", "layers.{i}.attention.wo.weight"},
               {"layers.{i}.self_attn.q_layernorm.weight", "layers.{i}.attention.q_norm.weight"},
               {"layers.{i}.self_attn.k_layernorm.weight", "layers.{i}.attention.k_norm.weight"},
               {"layers.{i}.conv.in_proj.weight", "layers.{i}.attention.in_proj.weight"},
               {"layers.{i}.conv.conv.weight", "layers.{i}.attention.conv1d.weight"},
               {"layers.{i}.conv.out_proj.weight", "layers.{i}.attention.out_proj.weight"}});
  if (config.number(kConvBias) == 0) return rules;
  return concat(
      {rules,
       rename_rules(prefix,
                    {{"layers.{i}.conv.in_proj.bias", "layers.{i}.attention.in_proj.bias"},
                     {"layers.{i}.conv.conv.bias", "layers.{i}.attention.conv1d.bias"},
                     {"layers.{i}.conv.out_proj.bias", "layers.{i}.attention.out_proj.bias"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_decoder(
      config, options, [&](GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
        return config.layer_types[static_cast<size_t>(layer)] == LayerType::kShortConv
                   ? short_conv(b, c, x, layer)
                   : attention(b, c, x, layer, {.qk_norm = AttentionStyle::QkNorm::kHead});
      });
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "lfm2",
               .defaults = R"({"vocab_size": 65536, "hidden_size": 2560, "intermediate_size": 12288,
                               "num_hidden_layers": 32, "num_attention_heads": 32,
                               "num_key_value_heads": 8, "max_position_embeddings": 128000,
                               "rms_norm_eps": 1e-5, "rope_theta": 1000000.0,
                               "tie_word_embeddings": true, "block_auto_adjust_ff_dim": true,
                               "block_multiple_of": 256, "block_ffn_dim_multiplier": 1.0,
                               "conv_L_cache": 3})",
               .names = {{"rms_norm_eps", {"norm_eps"}},
                         {"intermediate_size", {"block_ff_dim", "intermediate_size"}},
                         {"tie_word_embeddings", {"tie_embedding", "tie_word_embeddings"}}},
               .activation_key = "",
               .lists_layers = true,
               .convs = true,
               .read = read}},
    .components = {{.rules = rules, .build = build}}};

}  // namespace ferry::converters::families::lfm2
