// BLOOM: layer norms, also behind the embedding, an MLP without a gate, biases everywhere, and
// ALiBi. Source: transformers, models/bloom/modeling_bloom.py.

#include "converters/blocks/alibi.h"
#include "converters/blocks/decoder.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::bloom {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr GgufName kBloomGguf[] = {
    {"token_embd.weight", "transformer.word_embeddings.weight"},
    {"token_embd_norm.weight", "transformer.word_embeddings_layernorm.weight"},
    {"token_embd_norm.bias", "transformer.word_embeddings_layernorm.bias"},
    {"output_norm.weight", "transformer.ln_f.weight"},
    {"output_norm.bias", "transformer.ln_f.bias"},
    {"output.weight", "lm_head.weight"},
    {"blk.{i}.attn_norm.weight", "transformer.h.{i}.input_layernorm.weight"},
    {"blk.{i}.attn_norm.bias", "transformer.h.{i}.input_layernorm.bias"},
    {"blk.{i}.ffn_norm.weight", "transformer.h.{i}.post_attention_layernorm.weight"},
    {"blk.{i}.ffn_norm.bias", "transformer.h.{i}.post_attention_layernorm.bias"},
    {"blk.{i}.attn_qkv.weight", "transformer.h.{i}.self_attention.query_key_value.weight",
     kQkvByHead},
    {"blk.{i}.attn_qkv.bias", "transformer.h.{i}.self_attention.query_key_value.bias", kQkvByHead},
    {"blk.{i}.attn_output.weight", "transformer.h.{i}.self_attention.dense.weight"},
    {"blk.{i}.attn_output.bias", "transformer.h.{i}.self_attention.dense.bias"},
    {"blk.{i}.ffn_up.weight", "transformer.h.{i}.mlp.dense_h_to_4h.weight"},
    {"blk.{i}.ffn_up.bias", "transformer.h.{i}.mlp.dense_h_to_4h.bias"},
    {"blk.{i}.ffn_down.weight", "transformer.h.{i}.mlp.dense_4h_to_h.weight"},
    {"blk.{i}.ffn_down.bias", "transformer.h.{i}.mlp.dense_4h_to_h.bias"},
};

constexpr const char* kResidualOfNorm = "apply_residual_connection_post_layernorm";

// With slow_but_exact the reference leaves out the biases of a model that was trained in parts.
Status read(const JsonFields& fields, ModelConfig& config) {
  config.numbers[kAlibi] = kExactAlibi;
  const bool slow = FERRY_TRY(fields.flag_or("slow_but_exact", false));
  if (slow && FERRY_TRY(fields.integer_or("pretraining_tp", kTokenRange, 1)) > 1) {
    return fields.error(ErrorCode::kUnsupported, "slow_but_exact",
                        "is true: not supported with pretraining_tp");
  }
  return check_whole_heads(fields, config);
}

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  return concat(
      {query_key_value_rules(prefix + "h.{i}.", "self_attention.", /*bias=*/true),
       plain_mlp_rules(prefix, /*bias=*/true, "mlp.dense_h_to_4h", "mlp.dense_4h_to_h", "h.{i}."),
       parameter_rules(prefix, /*bias=*/true,
                       {{"h.{i}.input_layernorm", "layers.{i}.attention_norm"},
                        {"h.{i}.post_attention_layernorm", "layers.{i}.ffn_norm"},
                        {"word_embeddings_layernorm", "embedding_norm"},
                        {"ln_f", "norm"}}),
       rename_rules(prefix, {{"word_embeddings.weight", "tok_embeddings.weight"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool of_norm = config.number(kResidualOfNorm) > 0;
  return build_styled_decoder(config, options,
                              {.attention = {.qkv_bias = true, .output_bias = true},
                               .residuals = of_norm ? Residuals::kOfNorm : Residuals::kInTurn,
                               .mlp_bias = true,
                               .embedding_norm = true});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "bloom",
               // Nothing but ALiBi tells positions apart: seq_length is what the model was trained
               // with.
               .defaults = R"({"vocab_size": 250880, "hidden_size": 64, "num_hidden_layers": 2,
                               "num_attention_heads": 8, "max_position_embeddings": 2048,
                               "hidden_act": "gelu_pytorch_tanh", "rms_norm_eps": 1e-5,
                               "tie_word_embeddings": true})",
               .names = {{"hidden_size", {"n_embed", "hidden_size"}},
                         {"num_hidden_layers", {"num_hidden_layers", "n_layer"}},
                         {"num_attention_heads", {"num_attention_heads", "n_head"}},
                         {"max_position_embeddings", {"seq_length"}},
                         {"rms_norm_eps", {"layer_norm_epsilon"}}},
               .unread = {"hidden_act", "intermediate_size", "num_key_value_heads", "head_dim"},
               .flags = {{.key = kResidualOfNorm}},
               .mlp_ratio = 4,
               .rope = RopeRule::kNone,
               .qkv_bias = true,
               .rope_layers = RopeLayers::kNone,
               .read = read}},
    .components = {{.prefixes = {"transformer."}, .rules = rules, .build = build}},
    .classifiers = {{"Bloom", early_score_head}},
    .gguf = {{.name = "bloom",
              .tables = {kBloomGguf},
              .layer_norm = true,
              .keys = {kContext, kEmbedding, kFeedForward, kBlocks, kHeads, kKvHeads,
                       kLayerNormEpsilon, kFileType},
              .activation = Activation::kGeluTanh,
              .turns_nothing = true,
              .equal_heads = true}}};

}  // namespace ferry::converters::families::bloom
