// Gemma 3, text decoder, of text checkpoints and of multimodal ones, whose vision tower is dropped.
// Gemma 2 without the softcap of scores, with norms of q and k that multiply by (1 + w), and with a
// second RoPE for the sliding layers.
// Source: transformers, models/gemma3/modeling_gemma3.py.

#include "converters/blocks/gemma.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/families/keras_tables.h"

namespace ferry::converters::families::gemma3 {
namespace {

using namespace gguf_tables;
using namespace keras_tables;
using enum GgufKey;

// Projections behind the pooling of EmbeddingGemma.
constexpr GgufName kDenseGguf[] = {
    {"dense_2.weight", "2_Dense.linear.weight"},
    {"dense_3.weight", "3_Dense.linear.weight"},
};

constexpr const char* kVision = "vision: only the text part is built";

Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(read_gemma_scalars(fields, config));
  FERRY_RETURN_IF_ERROR(read_query_scalar(fields, config));
  config.numbers[kGemmaQkNorm] = 1;
  if (config.multimodal) return {};  // the multimodal class does not read the softcap
  config.scalars.logit_softcap = FERRY_TRY(fields.number("final_logit_softcapping", kScaleRange));
  return {};
}

constexpr KerasRow kKerasHeadNorms[] = {
    {"attention/query_norm/vars/0", "self_attn.q_norm.weight", KerasOp::kCopy, "d"},
    {"attention/key_norm/vars/0", "self_attn.k_norm.weight", KerasOp::kCopy, "d"},
};

}  // namespace

const FamilySpec kFamily = {
    .types =
        {{.name = "gemma3_text",
          .wrapper = {.name = "gemma3", .tied = true},
          .defaults =
              R"({"pad_token_id": 0, "vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216,
                               "num_hidden_layers": 26, "num_attention_heads": 8,
                               "num_key_value_heads": 4, "head_dim": 256,
                               "max_position_embeddings": 131072,
                               "hidden_activation": "gelu_pytorch_tanh",
                               "tie_word_embeddings": true, "query_pre_attn_scalar": 256,
                               "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
                               "sliding_window": 4096, "sliding_window_pattern": 6})",
          .activation_key = "hidden_activation",
          .rope = RopeRule::kByLayer,
          .window = WindowRule::kPattern,
          .lists_layers = true,
          .attention_bias = true,
          .two_way = TwoWayRule::kHalfWindow,
          .read = read}},
    .components = {{.prefixes = {"model.", "model.language_model.", "language_model.model."},
                    .heads = {"lm_head.weight", "language_model.lm_head.weight"},
                    .rules = gemma_rules,
                    .build = build_gemma}},
    .dropped = {{"model.vision_tower.*", kVision},
                {"vision_tower.*", kVision},
                {"model.multi_modal_projector.*", kVision},
                {"multi_modal_projector.*", kVision}},
    .classifiers = {{"Gemma3Text", score_head, /*texts=*/true, /*tokens=*/false}},
    .gguf = {{.name = "gemma3",
              .tokenizer_keys = {.sentence_piece = true, .no_prefix = true},
              .other_types = {"gemma3"},
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kFourNorms, kMlp},
              .shifted_norms = true,
              .sliding_pattern = true,
              .gemma = true,
              .layers_scaled_by_hidden = 62,
              .cuts_vocabulary = true,
              .keys = standard_keys({kHeadLengths, kLogitSoftcap, kWindow, kOtherWindows}),
              .writes = [](const ModelConfig& c) { return !c.is_encoder; },
              .unread = {kOutputBias},
              .activation = Activation::kGeluTanh},
             {.name = "gemma-embedding",
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kFourNorms, kMlp,
                         kDenseGguf},
              .shifted_norms = true,
              .sliding_pattern = true,
              .gemma = true,
              .own_keys = GgufOwnKeys::kEmbeddingGemma,
              .cuts_vocabulary = true,
              .keys =
                  standard_keys({kHeadLengths, kHalfWindow, kOtherWindows, kProjections, kPooling}),
              .tokenizer = "gemma3",
              .writes = [](const ModelConfig& c) { return c.is_encoder; },
              .unread = {kOutputBias},
              .activation = Activation::kGeluTanh}},
    .keras = {{.model_type = "gemma3_text",
               .classes = {"Gemma3Backbone"},
               .decoder = "gemma3_decoder_block",
               .final_norm = "rms_normalization",
               .outside = kKerasEmbeddingAndHead,
               .inside = {{kKerasGemma}, {kKerasGemma2Norms}, {kKerasHeadNorms}}}}};

}  // namespace ferry::converters::families::gemma3
