// OLMo 3: OLMo 2 where all but every fourth layer have a sliding window and a RoPE of their own.
// Source: transformers, models/olmo3/modeling_olmo3.py.

#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"

namespace ferry::converters::families::olmo3 {
namespace {

using namespace gguf_tables;
using enum GgufKey;

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return olmo2::kFamily.text_decoder().rules(config, prefix);
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return olmo2::kFamily.text_decoder().build(config, options);
}

}  // namespace

const FamilySpec kFamily = {
    .types =
        {{.name = "olmo3",
          .defaults =
              R"({"pad_token_id": 1, "vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008,
                               "num_hidden_layers": 32, "num_attention_heads": 32,
                               "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
                               "sliding_window": 4096, "sliding_window_pattern": 4,
                               "rope_theta": 500000.0, "rope_local_base_freq": 500000.0})",
          // The pattern and the base of layers with a window are fixed.
          .names = {{"sliding_window_pattern", {}}, {"rope_local_base_freq", {}}},
          .rope = RopeRule::kByLayer,
          .window = WindowRule::kPattern,
          .lists_layers = true,
          .attention_bias = true}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"Olmo3", score_head, /*texts=*/true, /*tokens=*/false}},
    .gguf = {{.name = "olmo2",
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kTwoPostNorms, kMlp},
              .window_every = 4,
              .sign = GgufSign::kWindows,
              .keys = standard_keys({kWindow, kWindowPattern}),
              .unread = {kOutputBias},
              .own_head = true,
              .plain_windows = true}}};

}  // namespace ferry::converters::families::olmo3
