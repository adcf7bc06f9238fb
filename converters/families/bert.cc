// BERT: learned positions, token types, layer norms behind the blocks. Source: transformers,
// models/bert.

#include "converters/blocks/bert.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"

namespace ferry::converters::families::bert {
namespace {

constexpr GgufName kBertGguf[] = {
    {"token_embd.weight", "embeddings.word_embeddings.weight"},
    {"position_embd.weight", "embeddings.position_embeddings.weight"},
    {"token_types.weight", "embeddings.token_type_embeddings.weight"},
    {"token_embd_norm.weight", "embeddings.LayerNorm.weight"},
    {"token_embd_norm.bias", "embeddings.LayerNorm.bias"},
    {"blk.{i}.attn_q.weight", "encoder.layer.{i}.attention.self.query.weight"},
    {"blk.{i}.attn_q.bias", "encoder.layer.{i}.attention.self.query.bias"},
    {"blk.{i}.attn_k.weight", "encoder.layer.{i}.attention.self.key.weight"},
    {"blk.{i}.attn_k.bias", "encoder.layer.{i}.attention.self.key.bias"},
    {"blk.{i}.attn_v.weight", "encoder.layer.{i}.attention.self.value.weight"},
    {"blk.{i}.attn_v.bias", "encoder.layer.{i}.attention.self.value.bias"},
    {"blk.{i}.attn_output.weight", "encoder.layer.{i}.attention.output.dense.weight"},
    {"blk.{i}.attn_output.bias", "encoder.layer.{i}.attention.output.dense.bias"},
    {"blk.{i}.attn_output_norm.weight", "encoder.layer.{i}.attention.output.LayerNorm.weight"},
    {"blk.{i}.attn_output_norm.bias", "encoder.layer.{i}.attention.output.LayerNorm.bias"},
    {"blk.{i}.ffn_up.weight", "encoder.layer.{i}.intermediate.dense.weight"},
    {"blk.{i}.ffn_up.bias", "encoder.layer.{i}.intermediate.dense.bias"},
    {"blk.{i}.ffn_down.weight", "encoder.layer.{i}.output.dense.weight"},
    {"blk.{i}.ffn_down.bias", "encoder.layer.{i}.output.dense.bias"},
    {"blk.{i}.layer_output_norm.weight", "encoder.layer.{i}.output.LayerNorm.weight"},
    {"blk.{i}.layer_output_norm.bias", "encoder.layer.{i}.output.LayerNorm.bias"},
};

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  return bert_rules(prefix);
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_styled_decoder(config, options, bert_style());
}

constexpr const char* kDefaults = R"({"vocab_size": 30522, "hidden_size": 768,
    "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2,
    "rms_norm_eps": 1e-12})";

Status head(const JsonFields&, bool per_token, const ModelConfig&, ClassifierConfig& out) {
  return pooler_head("bert.pooler.dense", per_token, out);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {bert_type("bert", kDefaults)},
    .components = {{.prefixes = {"bert."}, .heads = {}, .rules = rules, .build = build}},
    .dropped = {{"bert.pooler.*", kEncoderHead}, {"cls.*", kEncoderHead}},
    .classifiers = {{"Bert", head}},
    .gguf = {{.name = "bert",
              .tables = {kBertGguf},
              .layer_norm = true,
              .own_keys = GgufOwnKeys::kBert}}};

}  // namespace ferry::converters::families::bert
