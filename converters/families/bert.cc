// BERT: learned positions, token types, layer norms behind the blocks. Source: transformers,
// models/bert.

#include "converters/blocks/bert.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"

namespace ferry::converters::families::bert {
namespace {

constexpr GgufName kOwnGguf[] = {{"position_embd.weight", "embeddings.position_embeddings.weight"},
                                 {"cls.weight", "bert.pooler.dense.weight"},
                                 {"cls.bias", "bert.pooler.dense.bias"},
                                 {"cls.output.weight", "classifier.weight"},
                                 {"cls.output.bias", "classifier.bias"}};

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
              .tokenizer_keys = {.encoder = true},
              .tables = {gguf_tables::kBert, kOwnGguf},
              .layer_norm = true,
              .own_keys = GgufOwnKeys::kBert,
              .keys = gguf_tables::bert_keys(),
              .activation = Activation::kGeluTanh,
              .turns_nothing = true,
              .rough_gelu = true}}};

}  // namespace ferry::converters::families::bert
