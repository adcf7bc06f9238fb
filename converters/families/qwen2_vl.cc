// Text decoders of Qwen2-VL and Qwen2.5-VL: Qwen2 under other names. A text has one position in all
// three dimensions of its RoPE, which is then the plain one. Without images the vision tower is
// dropped; qwen2_vl_vision.cc has it.
// Source: transformers, models/qwen2_vl/modeling_qwen2_vl.py and
// models/qwen2_5_vl/modeling_qwen2_5_vl.py.

#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"

namespace ferry::converters::families::qwen2_vl {
namespace {

using namespace gguf_tables;

constexpr const char* kVision = "vision tower: only the text part is built";

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return qwen2::kFamily.text_decoder().rules(config, prefix);
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return qwen2::kFamily.text_decoder().build(config, options);
}

ModelType type_of(std::string_view name, std::string_view wrapper) {
  return {.name = name,
          .wrapper = {.name = wrapper, .flat = true, .text_ties = true},
          .defaults = R"({"vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568,
                          "num_hidden_layers": 80, "num_attention_heads": 64,
                          "num_key_value_heads": 8, "max_position_embeddings": 32768,
                          "rms_norm_eps": 1e-5, "rope_theta": 1000000.0, "sliding_window": 4096,
                          "max_window_layers": 80})",
          .names = {{"head_dim", {}}},
          .rope = RopeRule::kMrope,
          .window = WindowRule::kFromLayer,
          .lists_layers = true,
          .qkv_bias = true};
}

}  // namespace

const FamilySpec kFamily = {
    .types = {type_of("qwen2_vl_text", "qwen2_vl"), type_of("qwen2_5_vl_text", "qwen2_5_vl")},
    .components = {{.prefixes = {"model.", "model.language_model."},
                    .rules = rules,
                    .build = build}},
    .dropped = {{"model.visual.*", kVision}, {"visual.*", kVision}},
    .gguf = {{.name = "qwen2vl",
              .tokenizer_keys = {.sentence_piece = true},
              .model_type = "qwen2_5_vl_text",
              .other_types = {"qwen2_vl_text"},
              .tables = {kFrame, kAttention, kValueAndOutput, kPreNorm, kMlp},
              .keys = standard_keys()}}};

}  // namespace ferry::converters::families::qwen2_vl
