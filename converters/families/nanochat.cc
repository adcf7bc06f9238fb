// nanochat: RMS norms without weights, also behind the embedding and behind RoPE, which turns the
// other way, and an MLP without a gate. Source: transformers, models/nanochat/modeling_nanochat.py.

#include "converters/blocks/decoder.h"
#include "converters/config/json_fields.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::nanochat {
namespace {

Status read(const JsonFields& fields, ModelConfig& config) {
  config.scalars.logit_softcap = FERRY_TRY(fields.number("final_logit_softcapping", kScaleRange));
  return {};
}

// Returns the rows of heads with their halves swapped: turned in the usual way, they are at the
// angles of the reference, and no norm and no score sees the order.
RowOrder swapped_halves(int64_t heads, int64_t head_dim) {
  const int64_t half = head_dim / 2;
  RowOrder rows;
  for (int64_t head = 0; head < heads; ++head) {
    rows.push_back(run_piece(0, head * head_dim + half, half));
    rows.push_back(run_piece(0, head * head_dim, half));
  }
  return folded(rows);
}

KeyRule swapped_rule(KeyRule rule, int64_t (*heads)(const ModelConfig&)) {
  rule.targets[0].rows = [heads](const ModelConfig& c) {
    return swapped_halves(heads(c), c.head_dim);
  };
  rule.expected_rows = [heads](const ModelConfig& c) { return heads(c) * c.head_dim; };
  return rule;
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  std::vector<KeyRule> rules =
      concat({attention_rules(prefix, config.attention_bias),
              plain_mlp_rules(prefix, /*bias=*/false, "mlp.fc1", "mlp.fc2"),
              rename_rules(prefix, {{"embed_tokens.weight", "tok_embeddings.weight"}})});
  for (KeyRule& rule : rules) {
    if (rule.source.find(".q_proj.") != std::string::npos) {
      rule = swapped_rule(rule, [](const ModelConfig& c) { return c.num_heads; });
    }
    if (rule.source.find(".k_proj.") != std::string::npos) {
      rule = swapped_rule(rule, [](const ModelConfig& c) { return c.num_kv_heads; });
    }
  }
  return rules;
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const bool bias = config.attention_bias;
  return build_styled_decoder(config, options,
                              {.attention = {.qkv_bias = bias,
                                             .output_bias = bias,
                                             .qk_norm = AttentionStyle::QkNorm::kAfterBare},
                               .norm = NormKind::kRmsBare,
                               .embedding_norm = true});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "nanochat",
               .defaults = R"({"vocab_size": 50304, "hidden_size": 768, "intermediate_size": 8192,
                               "num_hidden_layers": 12, "num_attention_heads": 6,
                               "max_position_embeddings": 2048, "hidden_act": "relu2",
                               "final_logit_softcapping": 15.0})",
               .attention_bias = true,
               .read = read}},
    .components = {{.rules = rules, .build = build}}};

}  // namespace ferry::converters::families::nanochat
