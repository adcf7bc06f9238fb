// BERT: learned positions, token types, layer norms behind the blocks. Source: transformers,
// models/bert.

#include "converters/blocks/bert.h"
#include "converters/families/families.h"

namespace ferry::converters::families::bert {
namespace {

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  return bert_rules(prefix);
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_styled_decoder(config, options, bert_style());
}

constexpr const char* kHead = "head: an encoder gives states";

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "bert",
               .defaults = R"({"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12,
                               "num_attention_heads": 12, "intermediate_size": 3072,
                               "hidden_act": "gelu", "max_position_embeddings": 512,
                               "type_vocab_size": 2, "rms_norm_eps": 1e-12})",
               .names = {{"rms_norm_eps", {"layer_norm_eps"}}},
               .unread = {"num_key_value_heads", "head_dim"},
               .sizes = {kTokenTypes},
               .rope = RopeRule::kNone,
               .two_way = TwoWayRule::kAlways,
               .rope_layers = RopeLayers::kNone,
               .read = read_bert}},
    .components = {{.prefixes = {"bert."}, .heads = {}, .rules = rules, .build = build}},
    .dropped = {{"bert.pooler.*", kHead}, {"cls.*", kHead}}};

}  // namespace ferry::converters::families::bert
