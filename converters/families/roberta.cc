// RoBERTa, XLM-RoBERTa and CamemBERT: BERT with positions that begin behind the number of the
// padding token, which has no position of its own. Source: transformers, models/roberta,
// models/xlm_roberta, models/camembert.

#include "converters/blocks/bert.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"

namespace ferry::converters::families::roberta {
namespace {

constexpr const char* kDefaults = R"({"vocab_size": 50265, "hidden_size": 768,
    "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2,
    "rms_norm_eps": 1e-12, "pad_token_id": 1})";
constexpr const char* kLaterDefaults = R"({"vocab_size": 30522, "hidden_size": 768,
    "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2,
    "rms_norm_eps": 1e-12, "pad_token_id": 1})";

// The file has no rows for the positions that no token has. Files are read as those of BERT.
constexpr GgufName kOwnGguf[] = {
    {"position_embd.weight",
     "embeddings.position_embeddings.weight",
     {.written =
          [](const ModelConfig& config) {
            return RowOrder{run_piece(0, config.number(kUncountedToken) + 1, config.max_positions)};
          }}},
    {"cls.weight", "classifier.dense.weight"},
    {"cls.bias", "classifier.dense.bias"},
    {"cls.output.weight", "classifier.out_proj.weight"},
    {"cls.output.bias", "classifier.out_proj.bias"}};

Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(read_bert(fields, config));
  const int64_t pad = FERRY_TRY(fields.required("pad_token_id", {0, config.vocab_size - 1}));
  return read_uncounted(fields, pad, config);
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return roberta_rules(prefix, config.number(kUncountedToken));
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  DecoderStyle style = bert_style();
  style.uncounted = config.number(kUncountedToken);
  return build_styled_decoder(config, options, style);
}

ModelType type(std::string_view name, std::string_view defaults) {
  ModelType type = bert_type(name, defaults);
  type.read = read;
  return type;
}

}  // namespace

const FamilySpec kFamily = {
    .types = {type("roberta", kDefaults), type("xlm-roberta", kLaterDefaults),
              type("camembert", kLaterDefaults)},
    .components = {{.prefixes = {"roberta."}, .heads = {}, .rules = rules, .build = build}},
    .dropped = {{"roberta.pooler.*", kEncoderHead}, {"lm_head.*", kEncoderHead}},
    .classifiers = {{"Roberta", dense_head}, {"XLMRoberta", dense_head}, {"Camembert", dense_head}},
    .gguf = {{.name = "bert",
              .other_types = {"xlm-roberta", "camembert"},
              .tables = {gguf_tables::kBert, kOwnGguf},
              .layer_norm = true,
              .sign = GgufSign::kNever,
              .own_keys = GgufOwnKeys::kBert,
              .keys = gguf_tables::bert_keys(),
              .activation = Activation::kGeluTanh,
              .turns_nothing = true,
              .rough_gelu = true}}};

}  // namespace ferry::converters::families::roberta
