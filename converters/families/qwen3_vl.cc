// Text decoder of Qwen3-VL (dense): Qwen3 under another name. A text has one position in all three
// dimensions of its RoPE, which is then the plain one. Without images the vision tower is dropped,
// and with it what it adds to the first layers; qwen3_vl_vision.cc has it. Source: transformers,
// models/qwen3_vl/modeling_qwen3_vl.py.

#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"

namespace ferry::converters::families::qwen3_vl {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr const char* kVision = "vision tower: only the text part is built";

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return qwen3::kFamily.text_decoder().rules(config, prefix);
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return qwen3::kFamily.text_decoder().build(config, options);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "qwen3_vl_text",
               .wrapper = {.name = "qwen3_vl"},
               .defaults = R"({"vocab_size": 151936, "hidden_size": 4096,
                               "intermediate_size": 22016, "num_hidden_layers": 32,
                               "num_attention_heads": 32, "num_key_value_heads": 32,
                               "head_dim": 128, "max_position_embeddings": 128000,
                               "rope_theta": 500000.0})",
               .attention_bias = true}},
    .components = {{.prefixes = {"model.", "model.language_model."},
                    .rules = rules,
                    .build = build}},
    .dropped = {{"model.visual.*", kVision}, {"visual.*", kVision}},
    .gguf = {{.name = "qwen3vl",
              .tables = {kFrame, kAttention, kValueAndOutput, kPreNorm, kMlp},
              .interleaved_sections = true,
              .keys = standard_keys({kDeepstack}),
              .unread = {kOutputBias}}}};

}  // namespace ferry::converters::families::qwen3_vl
