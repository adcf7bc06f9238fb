// MPNet: BERT without token types, with positions as RoBERTa has them, and a bias of scores by the
// distance of two tokens. Source: transformers, models/mpnet.

#include "converters/blocks/bert.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::mpnet {
namespace {

constexpr int64_t kPadding = 1;  // whatever pad_token_id says
constexpr const char* kRows = "relative_attention_num_buckets";

// The reference numbers distances by 32 rows whatever the config says, and a table of fewer rows
// lacks some of them.
Status read(const JsonFields& fields, ModelConfig& config) {
  config.relative_bias.emplace();
  if (config.number(kRows) < config.relative_bias->buckets) {
    return fields.error(ErrorCode::kUnsupported, kRows, "is less than 32: not supported");
  }
  return read_uncounted(fields, kPadding, config);
}

KeyRule bias_rule(const std::string& prefix) {
  KeyRule rule;
  rule.name = "rows of relative_bias.weight that tokens may have";
  rule.source = prefix + "encoder.relative_attention_bias.weight";
  rule.expected_rows = [](const ModelConfig& config) { return config.number(kRows); };
  rule.targets = {{.name = "relative_bias.weight", .rows = [](const ModelConfig& config) {
                     return RowOrder{run_piece(0, 0, config.relative_bias->buckets)};
                   }}};
  return rule;
}

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  const std::string layer = "encoder.layer.{i}.";
  return concat(
      {rename_rules(prefix, {{"embeddings.word_embeddings.weight", "tok_embeddings.weight"}}),
       {position_rule(prefix + "embeddings.position_embeddings.weight", /*skipped=*/kPadding,
                      /*before=*/1),
        drop_rule(prefix + "embeddings.position_ids", "numbers that follow from the config"),
        bias_rule(prefix)},
       bert_norm_rules(prefix, "embeddings.LayerNorm", "embedding_norm"),
       parameter_rules(prefix + layer, /*bias=*/true,
                       {{"attention.attn.q", "layers.{i}.attention.wq"},
                        {"attention.attn.k", "layers.{i}.attention.wk"},
                        {"attention.attn.v", "layers.{i}.attention.wv"},
                        {"attention.attn.o", "layers.{i}.attention.wo"},
                        {"intermediate.dense", "layers.{i}.feed_forward.w1"},
                        {"output.dense", "layers.{i}.feed_forward.w2"}}),
       bert_norm_rules(prefix, layer + "attention.LayerNorm", "layers.{i}.attention_norm"),
       bert_norm_rules(prefix, layer + "output.LayerNorm", "layers.{i}.ffn_norm")});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  DecoderStyle style = bert_style();
  style.token_types = false;
  style.uncounted = kPadding;
  return build_styled_decoder(config, options, style);
}

ModelType type() {
  ModelType type = bert_type("mpnet",
                             R"({"vocab_size": 30527, "hidden_size": 768, "num_hidden_layers": 12,
          "num_attention_heads": 12, "intermediate_size": 3072, "hidden_act": "gelu",
          "max_position_embeddings": 512, "rms_norm_eps": 1e-12,
          "relative_attention_num_buckets": 32})");
  type.sizes = {kRows};
  type.read = read;
  return type;
}

}  // namespace

const FamilySpec kFamily = {
    .types = {type()},
    .components = {{.prefixes = {"mpnet."}, .heads = {}, .rules = rules, .build = build}},
    .dropped = {{"mpnet.pooler.*", kEncoderHead}, {"lm_head.*", kEncoderHead}},
    .classifiers = {{"MPNet", dense_head}}};

}  // namespace ferry::converters::families::mpnet
