// Gemma 4, text decoder, of text checkpoints and of multimodal ones, whose towers are dropped: with
// embeddings for each layer and shared keys and values (E2B, E4B), dense (12B, 31B), and with
// experts (26B-A4B).
// Source: transformers, models/gemma4/modeling_gemma4.py and
// models/gemma4_unified/modeling_gemma4_unified.py.

#include <fmt/format.h>

#include <string>

#include "converters/blocks/gemma.h"
#include "converters/blocks/gemma4.h"
#include "converters/blocks/layer_inputs.h"
#include "converters/blocks/shared_layers.h"
#include "converters/config/layer_heads.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"

namespace ferry::converters::families::gemma4 {
namespace {

constexpr const char* kOther = "vision and audio: only the text part is built";

Status read_experts(const JsonFields& fields, ModelConfig& config) {
  if (!FERRY_TRY(fields.flag_or("enable_moe_block", false))) return {};
  if (config.activation == Activation::kRelu2) {
    return fields.error(ErrorCode::kUnsupported, "hidden_activation",
                        "of experts is relu2: not supported");
  }
  MoeConfig& moe = config.moe;
  moe.experts = FERRY_TRY(fields.required("num_experts", {1, kExpertRange.max}));
  moe.per_token = FERRY_TRY(fields.required("top_k_experts", {1, kExpertRange.max}));
  if (moe.per_token > moe.experts) {
    return fields.bad("top_k_experts",
                      fmt::format("is {} of {} experts", moe.per_token, moe.experts));
  }
  moe.expert_size = FERRY_TRY(fields.required("moe_intermediate_size", kSizeRange));
  moe.expert_scale = true;
  moe.layers.assign(static_cast<size_t>(config.num_layers), true);
  return {};
}

Status read_text(const JsonFields& fields, ModelConfig& config) {
  for (const char* key : {"head_dim", "num_key_value_heads", "sliding_window"}) {
    FERRY_RETURN_IF_ERROR(require_value(fields, key));
  }
  FERRY_RETURN_IF_ERROR(read_gemma_scalars(fields, config));
  config.scalars.attention = 1.0;
  config.scalars.logit_softcap = FERRY_TRY(fields.number("final_logit_softcapping", kScaleRange));
  config.numbers[kSharedLayers] =
      FERRY_TRY(fields.required(kSharedLayers, {0, config.num_layers - 1}));
  return {};
}

Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(read_text(fields, config));
  const int64_t size = FERRY_TRY(fields.required(kLayerInputSize, {0, kSizeRange.max}));
  config.numbers[kLayerInputSize] = size;
  if (size > 0) config.numbers[kLayerVocab] = FERRY_TRY(fields.required(kLayerVocab, kSizeRange));
  return read_experts(fields, config);
}

Status read_layers(const JsonFields& fields, ModelConfig& config) {
  if (FERRY_TRY(read_layer_heads(fields, config))) return {};
  FERRY_RETURN_IF_ERROR(require_value(fields, "global_head_dim"));
  HeadSizes& full = config.full_heads.emplace(HeadSizes{config.num_kv_heads, kFullHeadDim});
  full.dim = FERRY_TRY(fields.integer_or("global_head_dim", kHeadDimRange, full.dim));
  // Only models whose keys are values read it.
  const auto kv_heads = FERRY_TRY(fields.integer("num_global_key_value_heads", kHeadRange));
  if (config.number(kKeysAreValues) != 0) full.kv_heads = kv_heads.value_or(full.kv_heads);
  return {};
}

using namespace gguf_tables;
using enum GgufKey;

constexpr GgufName kGgufRows[] = {
    {"per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
    {"per_layer_model_proj.weight", "model.per_layer_model_projection.weight"},
    {"per_layer_proj_norm.weight", "model.per_layer_projection_norm.weight"},
    {"blk.{i}.inp_gate.weight", "model.layers.{i}.per_layer_input_gate.weight"},
    {"blk.{i}.proj.weight", "model.layers.{i}.per_layer_projection.weight"},
    {"blk.{i}.post_norm.weight", "model.layers.{i}.post_per_layer_input_norm.weight"},
    {"blk.{i}.layer_output_scale.weight", "model.layers.{i}.layer_scalar"},
    {"blk.{i}.ffn_gate_inp.weight", "model.layers.{i}.router.proj.weight"},
    {"blk.{i}.ffn_gate_inp.scale", "model.layers.{i}.router.scale"},
    {"blk.{i}.ffn_down_exps.scale", "model.layers.{i}.router.per_expert_scale"},
    {"blk.{i}.post_ffw_norm_1.weight", "model.layers.{i}.post_feedforward_layernorm_1.weight"},
    {"blk.{i}.pre_ffw_norm_2.weight", "model.layers.{i}.pre_feedforward_layernorm_2.weight"},
    {"blk.{i}.post_ffw_norm_2.weight", "model.layers.{i}.post_feedforward_layernorm_2.weight"},
    {"blk.{i}.ffn_gate_up_exps.weight", "model.layers.{i}.experts.gate_up_proj"},
    {"blk.{i}.ffn_down_exps.weight", "model.layers.{i}.experts.down_proj"},
    {"blk.{i}.ffn_gate_exps.weight", "model.layers.{i}.experts.{e}.gate_proj.weight", kStacked},
    {"blk.{i}.ffn_up_exps.weight", "model.layers.{i}.experts.{e}.up_proj.weight", kStacked},
};

constexpr std::string_view kDefaults = R"({
  "vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30,
  "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
  "max_position_embeddings": 131072, "hidden_activation": "gelu_pytorch_tanh",
  "tie_word_embeddings": true, "sliding_window": 512, "sliding_window_pattern": 6,
  "num_kv_shared_layers": 0, "vocab_size_per_layer_input": 262144,
  "hidden_size_per_layer_input": 256,
  "rope_parameters": {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                       "rope_theta": 1000000.0}}})";
constexpr std::string_view kUnifiedDefaults = R"({
  "vocab_size": 262144, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 30,
  "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
  "max_position_embeddings": 262144, "hidden_activation": "gelu_pytorch_tanh",
  "tie_word_embeddings": true, "sliding_window": 1024, "sliding_window_pattern": 6,
  "num_kv_shared_layers": 0,
  "rope_parameters": {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25,
                       "rope_theta": 1000000.0}}})";

const ModelType kText = {.name = "gemma4_text",
                         .wrapper = {.name = "gemma4", .tied = true},
                         .defaults = kDefaults,
                         .unread = {"sliding_window_pattern"},
                         .flags = {{kKeysAreValues}, {kDoubleWideMlp}},
                         .activation_key = "hidden_activation",
                         .rope = RopeRule::kNested,
                         .window = WindowRule::kPattern,
                         .lists_layers = true,
                         .attention_bias = true,
                         .two_way = TwoWayRule::kNamed,
                         .read = read,
                         .read_layers = read_layers};

// Has neither embeddings for each layer nor experts.
ModelType unified_type() {
  ModelType type = kText;
  type.name = "gemma4_unified_text";
  type.wrapper.name = "gemma4_unified";
  type.defaults = kUnifiedDefaults;
  type.read = read_text;
  return type;
}

}  // namespace

const FamilySpec kFamily = {
    .types = {kText, unified_type()},
    .components = {{.prefixes = {"model.", "model.language_model."},
                    .rules = gemma4_rules,
                    .build = build_gemma4}},
    .dropped = {{"model.vision_tower.*", kOther},
                {"model.audio_tower.*", kOther},
                {"model.embed_vision.*", kOther},
                {"model.vision_embedder.*", kOther},
                {"model.embed_audio.*", kOther}},
    .gguf = {{.name = "gemma4",
              .tokenizer_keys = {.spaced = true},
              .other_types = {"gemma4", "gemma4_unified_text", "gemma4_unified"},
              .tables = {kFrame, kAttention, kValueAndOutput, kFourNorms, kMlp, kGgufRows},
              .sliding_pattern = true,
              .normed_experts = true,
              .own_keys = GgufOwnKeys::kKindsOfLayers,
              .keys = standard_keys({kHeadLengths, kLogitSoftcap, kWindow, kKindsOfLayers}),
              .unread = {"blk.{i}.attn_q.bias", "blk.{i}.attn_k.bias", "blk.{i}.attn_v.bias",
                         kOutputBias},
              .activation = Activation::kGeluTanh}}};

}  // namespace ferry::converters::families::gemma4
