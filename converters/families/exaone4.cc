// EXAONE 4: norms stand after the two blocks of a layer; q and k are normalised head by head. Where
// the config states a window, layers with full attention have no RoPE.
// Source: transformers, models/exaone4/modeling_exaone4.py.

#include "converters/blocks/decoder.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::exaone4 {
namespace {

using namespace gguf_tables;
using enum GgufKey;

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return olmo2::kFamily.text_decoder().rules(config, prefix);
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_attention_decoder(config, options, {.qk_norm = AttentionStyle::QkNorm::kHead},
                                 {.before = false, .after = true});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "exaone4",
               .defaults = R"({"vocab_size": 102400, "hidden_size": 4096,
                               "intermediate_size": 16384, "num_hidden_layers": 32,
                               "num_attention_heads": 32, "num_key_value_heads": 32,
                               "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
                               "sliding_window": 4096, "sliding_window_pattern": 4})",
               .window = WindowRule::kPattern,
               .lists_layers = true,
               .rope_layers = RopeLayers::kSlidingIfAny}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"Exaone4", score_head}},
    .gguf = {{.name = "exaone4",
              .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kTwoPostNorms, kMlp},
              .window_every = 4,
              .keys = standard_keys({kVocabulary, kWindow, kWindowPattern}),
              .rope_factors = true,
              .equal_heads = true,
              .turns_windows = true,
              .window_layers = 64}}};

}  // namespace ferry::converters::families::exaone4
