// EmbeddingGemma 2, text model, of text checkpoints and of multimodal ones, whose towers are
// dropped: layers of Gemma 4 that attend in both directions, whose inputs for each layer are a
// projection alone, and a matrix behind the final norm. Source: transformers,
// models/embedding_gemma2/modeling_embedding_gemma2.py.

#include "converters/blocks/gemma.h"
#include "converters/blocks/gemma4.h"
#include "converters/blocks/layer_inputs.h"
#include "converters/config/layer_heads.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::embedding_gemma2 {
namespace {

constexpr const char* kOther = "vision and audio: only the text part is built";

Status read(const JsonFields& fields, ModelConfig& config) {
  for (const char* key : {"head_dim", "num_key_value_heads", "sliding_window"}) {
    FERRY_RETURN_IF_ERROR(require_value(fields, key));
  }
  FERRY_RETURN_IF_ERROR(read_gemma_scalars(fields, config));
  config.scalars.attention = 1.0;
  config.numbers[kLayerInputSize] = FERRY_TRY(fields.required(kLayerInputSize, kSizeRange));
  config.numbers[kStateSize] = FERRY_TRY(fields.required(kStateSize, kSizeRange));
  return {};
}

Status read_layers(const JsonFields& fields, ModelConfig& config) {
  if (FERRY_TRY(read_layer_heads(fields, config))) return {};
  for (const char* key : {"global_head_dim", "num_global_key_value_heads"}) {
    FERRY_RETURN_IF_ERROR(require_value(fields, key));
  }
  HeadSizes full;
  full.dim = FERRY_TRY(fields.integer_or("global_head_dim", kHeadDimRange, kFullHeadDim));
  full.kv_heads = FERRY_TRY(fields.integer_or("num_global_key_value_heads", kHeadRange, 1));
  config.full_heads = full;
  return {};
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {gemma4_layer_rules(config, prefix),
       rename_rules(prefix,
                    {{"embedding_projection.weight", "project_out.weight"},
                     {"ple.per_layer_model_projection.weight", "layer_inputs.projection.weight"},
                     {"ple.per_layer_projection_norm.weight", "layer_inputs.norm.weight"}}),
       rename_rules(prefix + "layers.{i}.ple_block.",
                    {{"per_layer_input_gate.weight", "layers.{i}.layer_input.gate.weight"},
                     {"per_layer_projection.weight", "layers.{i}.layer_input.projection.weight"},
                     {"post_per_layer_input_norm.weight", "layers.{i}.layer_input.norm.weight"}})});
}

constexpr std::string_view kDefaults = R"({
  "vocab_size": 262144, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 24,
  "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 256,
  "max_position_embeddings": 262144, "hidden_activation": "gelu_pytorch_tanh",
  "sliding_window": 512, "sliding_window_pattern": 6, "hidden_size_per_layer_input": 512,
  "embedding_dim": 768,
  "rope_parameters": {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "default", "rope_theta": 1000000.0}}})";

}  // namespace

const FamilySpec kFamily = {.types = {{.name = "embedding_gemma2_text",
                                       .wrapper = {.name = "embedding_gemma2"},
                                       .defaults = kDefaults,
                                       .activation_key = "hidden_activation",
                                       .rope = RopeRule::kNested,
                                       .window = WindowRule::kPattern,
                                       .lists_layers = true,
                                       .attention_bias = true,
                                       .two_way = TwoWayRule::kRadius,
                                       .read = read,
                                       .read_layers = read_layers}},
                            .components = {{.prefixes = {"model.", "language_model."},
                                            .heads = {},
                                            .rules = rules,
                                            .build = build_gemma4}},
                            .dropped = {{"vision_tower.*", kOther},
                                        {"audio_tower.*", kOther},
                                        {"embed_vision.*", kOther},
                                        {"embed_audio.*", kOther}}};

}  // namespace ferry::converters::families::embedding_gemma2
