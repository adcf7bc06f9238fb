// GPT-Neo: GPT-2 with linear layers instead of Conv1D, scores that nothing divides, and windows in
// some layers. Source: transformers, models/gpt_neo/modeling_gpt_neo.py.

#include "converters/blocks/decoder.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::gpt_neo {
namespace {

Status read(const JsonFields& fields, ModelConfig& config) {
  config.scalars.attention = 1.0;
  return check_whole_heads(fields, config);
}

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  const std::string layer = prefix + "h.{i}.", attention = layer + "attn.attention.";
  return concat(
      {gpt_rules(prefix), derived_rules(attention),
       parameter_rules(attention, /*bias=*/false,
                       {{"q_proj", "layers.{i}.attention.wq"},
                        {"k_proj", "layers.{i}.attention.wk"},
                        {"v_proj", "layers.{i}.attention.wv"}}),
       parameter_rules(attention, /*bias=*/true, {{"out_proj", "layers.{i}.attention.wo"}}),
       parameter_rules(layer, /*bias=*/true, {{"ln_2", "layers.{i}.ffn_norm"}}),
       plain_mlp_rules(prefix, /*bias=*/true, "mlp.c_fc", "mlp.c_proj", "h.{i}."),
       rename_rules(prefix, {{"wpe.weight", "position_embeddings.weight"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_styled_decoder(
      config, options,
      {.attention = {.output_bias = true}, .mlp_bias = true, .learned_positions = true});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "gpt_neo",
               .defaults = R"({"vocab_size": 50257, "hidden_size": 2048, "num_hidden_layers": 24,
                               "num_attention_heads": 16, "max_position_embeddings": 2048,
                               "sliding_window": 256, "rms_norm_eps": 1e-5,
                               "activation_function": "gelu_new", "tie_word_embeddings": true})",
               // The class maps the common names to those of the model.
               .names = {{"num_hidden_layers", {"num_hidden_layers", "num_layers"}},
                         {"num_attention_heads", {"num_attention_heads", "num_heads"}},
                         {"sliding_window", {"window_size"}},
                         {"rms_norm_eps", {"layer_norm_epsilon"}}},
               .unread = {"num_key_value_heads", "head_dim"},
               .activation_key = "activation_function",
               .mlp_ratio = 4,
               .rope = RopeRule::kNone,
               .window = WindowRule::kGlobalLocal,
               .rope_layers = RopeLayers::kNone,
               .read = read}},
    .components = {{.prefixes = {"transformer."}, .rules = rules, .build = build}},
    .classifiers = {{"GPTNeo", early_score_head}}};

}  // namespace ferry::converters::families::gpt_neo
