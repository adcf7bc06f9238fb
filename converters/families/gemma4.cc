// Gemma 4, text decoder, of text checkpoints and of multimodal ones, whose towers are dropped: with
// embeddings for each layer and shared keys and values (E2B, E4B), dense (12B, 31B), and with
// experts (26B-A4B).
// Source: transformers, models/gemma4/modeling_gemma4.py and
// models/gemma4_unified/modeling_gemma4_unified.py.

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "converters/blocks/gemma.h"
#include "converters/blocks/gemma4.h"
#include "converters/blocks/layer_inputs.h"
#include "converters/blocks/shared_layers.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"

namespace ferry::converters::families::gemma4 {
namespace {

constexpr const char* kOther = "vision and audio: only the text part is built";
constexpr int64_t kFullHeadDim = 512;  // where a config states none

// A key of the class that must not be null.
Status refuse_null(const JsonFields& fields, std::string_view key) {
  if (!fields.states(key) || fields.find(key) != nullptr) return {};
  return fields.bad(key, "is null");
}

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
    FERRY_RETURN_IF_ERROR(refuse_null(fields, key));
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

// Reads the heads of one layer in per_layer_config. The reference reads no other key there, and
// fails where one differs from the key of the whole model.
Status read_heads(const JsonFields& layer, HeadSizes& heads) {
  heads.kv_heads = FERRY_TRY(layer.integer_or("num_key_value_heads", kHeadRange, heads.kv_heads));
  heads.dim = FERRY_TRY(layer.integer_or("head_dim", kHeadDimRange, heads.dim));
  const auto known = static_cast<size_t>(layer.states("num_key_value_heads")) +
                     static_cast<size_t>(layer.states("head_dim"));
  for (const char* key : {"num_key_value_heads", "head_dim"}) {
    FERRY_RETURN_IF_ERROR(refuse_null(layer, key));
  }
  if (layer.size() == known) return {};
  return layer.error(ErrorCode::kUnsupported, "",
                     "has other keys than head_dim and num_key_value_heads: not supported");
}

// Reads per_layer_config, which states the heads of single layers. Layers of one type must have
// equal heads, because they share a RoPE.
Status read_layer_heads(const JsonFields& fields, const nlohmann::json& stated,
                        ModelConfig& config) {
  const std::string_view key = "per_layer_config";
  const JsonFields parts = *FERRY_TRY(fields.object(key));
  std::vector<HeadSizes> heads(config.layer_types.size(), {config.num_kv_heads, config.head_dim});
  for (const auto& item : stated.items()) {
    const std::string& name = item.key();
    size_t layer = 0;
    const char* end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data(), end, layer);
    if (error != std::errc() || rest != end || layer >= heads.size()) {
      return fields.bad(
          key, fmt::format("has a layer that the model lacks: {} of {}", name, heads.size()));
    }
    const auto part = FERRY_TRY(parts.object(name));
    if (!part) return parts.bad(name, "is null");
    FERRY_RETURN_IF_ERROR(read_heads(*part, heads[layer]));
  }
  std::map<LayerType, HeadSizes> of_type;
  for (size_t layer = 0; layer < heads.size(); ++layer) {
    const auto [first, is_new] = of_type.emplace(config.layer_types[layer], heads[layer]);
    if (is_new || first->second == heads[layer]) continue;
    return fields.bad(key, fmt::format("has other heads in layer {} than in an earlier layer of "
                                       "its type",
                                       layer));
  }
  if (const auto sliding = of_type.find(LayerType::kSlidingAttention); sliding != of_type.end()) {
    config.num_kv_heads = sliding->second.kv_heads;
    config.head_dim = sliding->second.dim;
  }
  config.full_heads = of_type.at(LayerType::kFullAttention);
  return {};
}

Status read_layers(const JsonFields& fields, ModelConfig& config) {
  // The reference makes the last layer one of full attention, whatever layer_types says.
  config.layer_types.back() = LayerType::kFullAttention;
  if (std::ranges::count(config.layer_types, LayerType::kSlidingAttention) == 0) {
    config.sliding_window.reset();
  }
  if (const nlohmann::json* stated = fields.find("per_layer_config")) {
    if (!stated->is_object()) return fields.bad("per_layer_config", "is no object");
    return read_layer_heads(fields, *stated, config);
  }
  if (fields.states("per_layer_config")) return {};
  FERRY_RETURN_IF_ERROR(refuse_null(fields, "global_head_dim"));
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
