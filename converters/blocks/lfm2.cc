#include "converters/blocks/lfm2.h"

#include "converters/blocks/blocks.h"
#include "converters/blocks/caches.h"
#include "converters/blocks/decoder.h"
#include "converters/blocks/decoder_context.h"
#include "converters/config/json_fields.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters {
namespace {

// The members of ModelConfig::numbers that short_conv() reads.
constexpr const char* kConvKernel = "conv_kernel";
constexpr const char* kConvBias = "conv_bias";  // 1 where all projections have a bias

// The gated short convolution: out_proj(C * conv(B * x)), where in_proj gives B, C and x side by
// side.
ValueId short_conv(GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
  const std::string prefix = layer_name(layer, "attention");
  const int64_t width = c.config.hidden_size;
  const bool bias = c.config.number(kConvBias) != 0;
  const ValueId mixed = projection(b, x, prefix + ".in_proj", width, 3 * width, bias);
  const std::vector<ValueId> parts = b.split(mixed, {width, width, width}, 2);
  const ValueId gated = b.mul(parts[0], parts[2]);
  ValueId y =
      b.permute(causal_conv(b, c, gated, layer, width, c.config.number(kConvKernel)), {0, 2, 1});
  if (bias) y = b.add(y, b.weight(prefix + ".conv1d.bias", {features(width)}));
  return projection(b, b.mul(parts[1], y), prefix + ".out_proj", width, width, bias);
}

}  // namespace

Status read_lfm2(const JsonFields& fields, ModelConfig& config) {
  config.numbers[kConvKernel] = FERRY_TRY(fields.required("conv_L_cache", kConvRange));
  config.numbers[kConvBias] = FERRY_TRY(fields.flag_or("conv_bias", false)) ? 1 : 0;
  return {};
}

std::vector<KeyRule> lfm2_rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {rename_rules(
           prefix,
           {{"embed_tokens.weight", "tok_embeddings.weight"},
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
            {"layers.{i}.self_attn.k_layernorm.weight", "layers.{i}.attention.k_norm.weight"}}),
       parameter_rules(prefix, config.number(kConvBias) != 0,
                       {{"layers.{i}.conv.in_proj", "layers.{i}.attention.in_proj"},
                        {"layers.{i}.conv.conv", "layers.{i}.attention.conv1d"},
                        {"layers.{i}.conv.out_proj", "layers.{i}.attention.out_proj"}})});
}

Result<Methods> build_lfm2(const ModelConfig& config, const BuildOptions& options) {
  return build_mixed_decoder(config, options, {.qk_norm = AttentionStyle::QkNorm::kHead},
                             short_conv);
}

}  // namespace ferry::converters
