// Gemma 2: every second layer has a sliding window. Norms stand before and after both blocks of a
// layer. Attention scores are multiplied by 1/sqrt(query_pre_attn_scalar), then softcapped; logits
// are softcapped too.
// Source: transformers, models/gemma2/modeling_gemma2.py, with its eager attention: the fused one
// omits the softcap.

#include "converters/blocks/gemma.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/families/keras_tables.h"

namespace ferry::converters::families::gemma2 {
namespace {

using namespace gguf_tables;
using namespace keras_tables;
using enum GgufKey;

Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(read_gemma_scalars(fields, config));
  FERRY_RETURN_IF_ERROR(read_query_scalar(fields, config));
  ScalarConfig& out = config.scalars;
  out.attention_softcap = FERRY_TRY(fields.number("attn_logit_softcapping", kScaleRange));
  out.logit_softcap = FERRY_TRY(fields.number("final_logit_softcapping", kScaleRange));
  return {};
}

}  // namespace

const FamilySpec kFamily = {
    .types =
        {{.name = "gemma2",
          .defaults =
              R"({"pad_token_id": 0, "vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216,
                               "num_hidden_layers": 26, "num_attention_heads": 8,
                               "num_key_value_heads": 4, "head_dim": 256,
                               "max_position_embeddings": 8192,
                               "hidden_activation": "gelu_pytorch_tanh",
                               "tie_word_embeddings": true, "query_pre_attn_scalar": 256,
                               "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
                               "sliding_window": 4096, "sliding_window_pattern": 2})",
          .names = {{"sliding_window_pattern", {}}},  // layers always alternate
          .activation_key = "hidden_activation",
          .window = WindowRule::kPattern,
          .lists_layers = true,
          .attention_bias = true,
          .two_way = TwoWayRule::kRefused,
          .read = read}},
    .components = {{.rules = gemma_rules, .build = build_gemma}},
    .classifiers = {{"Gemma2", score_head}},
    .gguf = {{.name = "gemma2",
              .tokenizer_keys = {.sentence_piece = true, .no_prefix = true},
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kFourNorms, kMlp},
              .shifted_norms = true,
              .gemma = true,
              .layers_scaled_by_hidden = 46,
              .window_every = 2,
              .keys = gemma_keys(
                  {kScoreSoftcap, kLogitSoftcap, kWindowOrNone, kOtherWindows, kOtherRopeBase}),
              .unread = {kOutputBias},
              .activation = Activation::kGeluTanh,
              .tied_head = true}},
    .keras = {{.classes = {"GemmaBackbone"},
               .decoder = "gemma_decoder_block",
               .final_norm = "rms_normalization",
               .outside = kKerasEmbeddingAndHead,
               .inside = {{kKerasGemma}, {kKerasGemma2Norms}}}}};

}  // namespace ferry::converters::families::gemma2
