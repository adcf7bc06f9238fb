// Gemma 3n, text decoder, of text checkpoints and of multimodal ones, whose towers are dropped.
// Source: transformers, models/gemma3n/modeling_gemma3n.py.

#include <string>

#include "converters/blocks/gemma.h"
#include "converters/blocks/gemma3n.h"
#include "converters/blocks/layer_inputs.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"

namespace ferry::converters::families::gemma3n {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr const char* kOther = "vision and audio: only the text part is built";

constexpr GgufForm kMatrices = {.shape = GgufForm::Shape::kMatrices};
// Readers want a row for every token. Those beyond the table get what the reference gives them: the
// inputs of token 0.
constexpr GgufForm kAllTokens = {.written = [](const ModelConfig& config) {
  const int64_t rows = config.number(kLayerVocab);
  StridedPiece more;
  add_axis(more, {config.vocab_size - rows, 0});
  add_axis(more, {1, 1});
  std::vector<StridedPiece> order = {run_piece(0, 0, rows)};
  if (config.vocab_size > rows) order.push_back(more);
  return order;
}};
constexpr GgufName kGemma3nGguf[] = {
    {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight", kAllTokens},
    {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
    {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"},
    {"altup_proj.weight", "model.altup_projections.{e}.weight", kMatrices},
    {"altup_unembd_proj.weight", "model.altup_unembed_projections.{e}.weight", kMatrices},
    {"blk.{i}.inp_gate.weight", "model.layers.{i}.per_layer_input_gate.weight"},
    {"blk.{i}.proj.weight", "model.layers.{i}.per_layer_projection.weight"},
    {"blk.{i}.post_norm.weight", "model.layers.{i}.post_per_layer_input_norm.weight"},
    {"blk.{i}.altup_correct_coef.weight", "model.layers.{i}.altup.correction_coefs.weight"},
    {"blk.{i}.altup_correct_scale.weight", "model.layers.{i}.altup.correct_output_scale"},
    {"blk.{i}.altup_predict_coef.weight", "model.layers.{i}.altup.prediction_coefs.weight"},
    {"blk.{i}.altup_router.weight", "model.layers.{i}.altup.modality_router.weight"},
    {"blk.{i}.altup_router_norm.weight", "model.layers.{i}.altup.router_norm.weight"},
    {"blk.{i}.laurel_l.weight", "model.layers.{i}.laurel.linear_left.weight"},
    {"blk.{i}.laurel_r.weight", "model.layers.{i}.laurel.linear_right.weight"},
    {"blk.{i}.laurel_post_norm.weight", "model.layers.{i}.laurel.post_laurel_norm.weight"},
};

Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(read_gemma_scalars(fields, config));
  return read_gemma3n(fields, config);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "gemma3n_text",
               .wrapper = {.name = "gemma3n", .tied = true},
               .defaults = R"({"vocab_size": 262400, "hidden_size": 2048,
                               "intermediate_size": 16384, "num_hidden_layers": 35,
                               "num_attention_heads": 8, "num_key_value_heads": 2,
                               "head_dim": 256, "max_position_embeddings": 32768,
                               "hidden_activation": "gelu_pytorch_tanh",
                               "tie_word_embeddings": true, "rope_theta": 1000000.0,
                               "rope_local_base_freq": 10000.0, "sliding_window": 512,
                               "sliding_window_pattern": 5, "final_logit_softcapping": 30.0,
                               "vocab_size_per_layer_input": 262144,
                               "hidden_size_per_layer_input": 256, "altup_active_idx": 0,
                               "altup_num_inputs": 4, "num_kv_shared_layers": 15,
                               "laurel_rank": 64})",
               .flags = {{"altup_correct_scale", "altup_correct_scale", true}},
               .activation_key = "hidden_activation",
               .rope = RopeRule::kByLayer,
               .window = WindowRule::kPattern,
               .lists_layers = true,
               .attention_bias = true,
               .read = read}},
    .components = {{.prefixes = {"model.", "model.language_model."},
                    .rules = gemma3n_rules,
                    .build = build_gemma3n}},
    .dropped = {{"model.vision_tower.*", kOther},
                {"model.audio_tower.*", kOther},
                {"model.embed_vision.*", kOther},
                {"model.embed_audio.*", kOther}},
    .gguf = {{.name = "gemma3n",
              .other_types = {"gemma3n"},
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kFourNorms, kMlp,
                         kGemma3nGguf},
              .sliding_pattern = true,
              .own_keys = GgufOwnKeys::kGemma3n,
              .cuts_vocabulary = true,
              .keys = standard_keys({kHeadLengths, kLogitSoftcap, kWindow, kStreams}),
              .tokenizer = "gemma3",
              .unread = attention_biases(),
              .activation = Activation::kGeluTanh,
              .lists_windows = true,
              .keeps_unused = "self_attn."}}};

}  // namespace ferry::converters::families::gemma3n
