// Cohere's Command R7B and Command A: Command R where all but every fourth layer have a sliding
// window, and only those have RoPE. Source: transformers, models/cohere2/modeling_cohere2.py.

#include "converters/blocks/cohere.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"

namespace ferry::converters::families::cohere2 {
namespace {

using namespace gguf_tables;
using enum GgufKey;

Status read(const JsonFields& fields, ModelConfig& config) {
  if (fields.find("sliding_window") == nullptr) return fields.bad("sliding_window", "is null");
  return read_cohere(fields, config);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "cohere2",
               .defaults = R"({"vocab_size": 256000, "hidden_size": 8192,
                               "intermediate_size": 22528, "logit_scale": 0.0625,
                               "num_hidden_layers": 40, "num_attention_heads": 64,
                               "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
                               "tie_word_embeddings": true, "sliding_window": 4096,
                               "sliding_window_pattern": 4})",
               .names = {{"rms_norm_eps", {"layer_norm_eps"}}},
               .window = WindowRule::kPattern,
               .lists_layers = true,
               .attention_bias = true,
               .rope_layers = RopeLayers::kSliding,
               .read = read}},
    .components = {{.rules = cohere_rules, .build = build_cohere}},
    .gguf = {{.name = "cohere2",
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kMlp},
              .layer_norm = true,
              .logit_scale = true,
              .window_every = 4,
              .keys = standard_keys(
                  {kLogitScale, kWindow, kOtherWindows, kVocabulary, kRopeDimension, kRopeScaling}),
              .unread = {kOutputBias},
              .tied_head = true,
              .equal_heads = true,
              .turns_windows = true}}};

}  // namespace ferry::converters::families::cohere2
