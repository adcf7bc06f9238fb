// Numbers beside the weights: multipliers and softcaps.
#include <cmath>

#include "converters/config/model_config_parts.h"

namespace ferry::converters {
namespace {

Status read_gemma(const JsonFields& fields, const TypeTraits& type, ModelConfig& config) {
  ScalarConfig& out = config.scalars;
  // In f32 as it is. The reference rounds it to the dtype that it computes in: in bf16 sqrt(1152)
  // is 34 there. Our residual stream is f32 whatever the dtype of the weights, and so is this.
  out.embedding = std::sqrt(static_cast<double>(config.hidden_size));
  if (type.scalars == ScalarRule::kGemma) return {};
  if (const auto scalar = FERRY_TRY(fields.number("query_pre_attn_scalar", kScaleRange))) {
    out.attention = 1.0 / std::sqrt(*scalar);
  }
  if (type.scalars == ScalarRule::kGemma2) {
    out.attention_softcap = FERRY_TRY(fields.number("attn_logit_softcapping", kScaleRange));
  }
  // The multimodal class of Gemma 3 does not read it.
  if (config.multimodal) return {};
  out.logit_softcap = FERRY_TRY(fields.number("final_logit_softcapping", kScaleRange));
  return {};
}

Status read_granite(const JsonFields& fields, ModelConfig& config) {
  ScalarConfig& out = config.scalars;
  out.embedding = FERRY_TRY(fields.number_or("embedding_multiplier", kScaleRange, 1.0));
  out.residual = FERRY_TRY(fields.number_or("residual_multiplier", kScaleRange, 1.0));
  out.attention = FERRY_TRY(fields.number_or("attention_multiplier", kScaleRange, 1.0));
  out.logits = 1.0 / FERRY_TRY(fields.number_or("logits_scaling", kScaleRange, 1.0));
  return {};
}

}  // namespace

Status read_scalars(const JsonFields& fields, const TypeTraits& type, ModelConfig& config) {
  switch (type.scalars) {
    case ScalarRule::kGemma:
    case ScalarRule::kGemma2:
    case ScalarRule::kGemma3:
      return read_gemma(fields, type, config);
    case ScalarRule::kGranite:
      return read_granite(fields, config);
    case ScalarRule::kNone:
      break;
  }
  return {};
}

}  // namespace ferry::converters
