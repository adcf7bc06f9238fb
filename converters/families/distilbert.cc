// DistilBERT: BERT without token types. Source: transformers, models/distilbert.

#include "converters/blocks/bert.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::distilbert {
namespace {

constexpr GgufName kDistilGguf[] = {
    {"token_embd.weight", "embeddings.word_embeddings.weight"},
    {"position_embd.weight", "embeddings.position_embeddings.weight"},
    {"token_embd_norm.weight", "embeddings.LayerNorm.weight"},
    {"token_embd_norm.bias", "embeddings.LayerNorm.bias"},
    {"blk.{i}.attn_q.weight", "transformer.layer.{i}.attention.q_lin.weight"},
    {"blk.{i}.attn_q.bias", "transformer.layer.{i}.attention.q_lin.bias"},
    {"blk.{i}.attn_k.weight", "transformer.layer.{i}.attention.k_lin.weight"},
    {"blk.{i}.attn_k.bias", "transformer.layer.{i}.attention.k_lin.bias"},
    {"blk.{i}.attn_v.weight", "transformer.layer.{i}.attention.v_lin.weight"},
    {"blk.{i}.attn_v.bias", "transformer.layer.{i}.attention.v_lin.bias"},
    {"blk.{i}.attn_output.weight", "transformer.layer.{i}.attention.out_lin.weight"},
    {"blk.{i}.attn_output.bias", "transformer.layer.{i}.attention.out_lin.bias"},
    {"blk.{i}.attn_output_norm.weight", "transformer.layer.{i}.sa_layer_norm.weight"},
    {"blk.{i}.attn_output_norm.bias", "transformer.layer.{i}.sa_layer_norm.bias"},
    {"blk.{i}.ffn_up.weight", "transformer.layer.{i}.ffn.lin1.weight"},
    {"blk.{i}.ffn_up.bias", "transformer.layer.{i}.ffn.lin1.bias"},
    {"blk.{i}.ffn_down.weight", "transformer.layer.{i}.ffn.lin2.weight"},
    {"blk.{i}.ffn_down.bias", "transformer.layer.{i}.ffn.lin2.bias"},
    {"blk.{i}.layer_output_norm.weight", "transformer.layer.{i}.output_layer_norm.weight"},
    {"blk.{i}.layer_output_norm.bias", "transformer.layer.{i}.output_layer_norm.bias"},
};

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  const std::string layer = "transformer.layer.{i}.";
  return concat(
      {rename_rules(prefix, {{"embeddings.word_embeddings.weight", "tok_embeddings.weight"}}),
       {position_rule(prefix + "embeddings.position_embeddings.weight", /*skipped=*/0),
        drop_rule(prefix + "embeddings.position_ids", "numbers that follow from the config")},
       bert_norm_rules(prefix, "embeddings.LayerNorm", "embedding_norm"),
       parameter_rules(prefix + layer, /*bias=*/true,
                       {{"attention.q_lin", "layers.{i}.attention.wq"},
                        {"attention.k_lin", "layers.{i}.attention.wk"},
                        {"attention.v_lin", "layers.{i}.attention.wv"},
                        {"attention.out_lin", "layers.{i}.attention.wo"},
                        {"sa_layer_norm", "layers.{i}.attention_norm"},
                        {"ffn.lin1", "layers.{i}.feed_forward.w1"},
                        {"ffn.lin2", "layers.{i}.feed_forward.w2"},
                        {"output_layer_norm", "layers.{i}.ffn_norm"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  DecoderStyle style = bert_style();
  style.token_types = false;
  return build_styled_decoder(config, options, style);
}

Status head(const JsonFields&, bool per_token, const ModelConfig&, ClassifierConfig& out) {
  out.pooling = per_token ? ClassifierConfig::Pooling::kNone : ClassifierConfig::Pooling::kFirst;
  if (!per_token) out.steps.push_back({.key = "pre_classifier", .activation = Activation::kRelu});
  out.steps.push_back({.key = "classifier"});
  return {};
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "distilbert",
               .defaults = R"({"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 6,
                               "num_attention_heads": 12, "intermediate_size": 3072,
                               "activation": "gelu", "max_position_embeddings": 512,
                               "rms_norm_eps": 1e-12})",
               .names = {{"hidden_size", {"hidden_size", "dim"}},
                         {"num_attention_heads", {"num_attention_heads", "n_heads"}},
                         {"num_hidden_layers", {"num_hidden_layers", "n_layers"}},
                         {"intermediate_size", {"hidden_dim"}}},
               .unread = {"rms_norm_eps", "num_key_value_heads", "head_dim"},
               .activation_key = "activation",
               .rope = RopeRule::kNone,
               .two_way = TwoWayRule::kAlways,
               .rope_layers = RopeLayers::kNone}},
    .components = {{.prefixes = {"distilbert."}, .heads = {}, .rules = rules, .build = build}},
    .dropped = {{"vocab_transform.*", kEncoderHead},
                {"vocab_layer_norm.*", kEncoderHead},
                {"vocab_projector.*", kEncoderHead}},
    .classifiers = {{"DistilBert", head}},
    .gguf = {{.name = "bert",
              .tables = {kDistilGguf},
              .layer_norm = true,
              .sign = GgufSign::kNoTokenTypes,
              .own_keys = GgufOwnKeys::kBert,
              .keys = {GgufKey::kLayerNormEpsilon, GgufKey::kBlocks, GgufKey::kContext,
                       GgufKey::kEmbedding, GgufKey::kFeedForward, GgufKey::kHeads,
                       GgufKey::kFileType, GgufKey::kNotCausal, GgufKey::kPooling},
              .activation = Activation::kGeluTanh,
              .turns_nothing = true,
              .rough_gelu = true}}};

}  // namespace ferry::converters::families::distilbert
