// MPT: layer norms without biases, an MLP without a gate, and ALiBi. Of attn_config the reference
// reads clip_qkv and softmax_scale alone. Source: transformers, models/mpt/modeling_mpt.py.

#include "converters/blocks/alibi.h"
#include "converters/blocks/decoder.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::mpt {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr GgufName kMptGguf[] = {
    {"token_embd.weight", "transformer.wte.weight"},
    {"output_norm.weight", "transformer.norm_f.weight"},
    {"output.weight", "lm_head.weight"},
    {"blk.{i}.attn_norm.weight", "transformer.blocks.{i}.norm_1.weight"},
    {"blk.{i}.attn_qkv.weight", "transformer.blocks.{i}.attn.Wqkv.weight"},
    {"blk.{i}.attn_output.weight", "transformer.blocks.{i}.attn.out_proj.weight"},
    {"blk.{i}.ffn_norm.weight", "transformer.blocks.{i}.norm_2.weight"},
    {"blk.{i}.ffn_up.weight", "transformer.blocks.{i}.ffn.up_proj.weight"},
    {"blk.{i}.ffn_down.weight", "transformer.blocks.{i}.ffn.down_proj.weight"},
};

Status read(const JsonFields& fields, ModelConfig& config) {
  config.numbers[kAlibi] = kExactAlibi;
  FERRY_RETURN_IF_ERROR(check_whole_heads(fields, config));
  const auto attention = FERRY_TRY(fields.object("attn_config"));
  if (!attention) return {};
  const double clip = FERRY_TRY(attention->number_or("clip_qkv", {0.0, kScaleRange.max}, 0.0));
  if (clip > 0) config.scalars.qkv_clip = clip;
  config.scalars.attention = FERRY_TRY(attention->number("softmax_scale", kScaleRange));
  return {};
}

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  const std::string layer = prefix + "blocks.{i}.";
  return concat(
      {packed_qkv_rules(layer + "attn.Wqkv", /*bias=*/false, PackedLayout::kConcatenated),
       rename_rules(layer, {{"attn.out_proj.weight", "layers.{i}.attention.wo.weight"},
                            {"norm_1.weight", "layers.{i}.attention_norm.weight"},
                            {"norm_2.weight", "layers.{i}.ffn_norm.weight"}}),
       plain_mlp_rules(prefix, /*bias=*/false, "ffn.up_proj", "ffn.down_proj", "blocks.{i}."),
       rename_rules(prefix,
                    {{"wte.weight", "tok_embeddings.weight"}, {"norm_f.weight", "norm.weight"}})});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_styled_decoder(config, options, {.norm = NormKind::kLayerNoBias});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "mpt",
               .defaults = R"({"vocab_size": 50368, "hidden_size": 2048, "num_hidden_layers": 24,
                               "num_attention_heads": 16, "max_position_embeddings": 2048,
                               "hidden_act": "gelu", "rms_norm_eps": 1e-5,
                               "tie_word_embeddings": true})",
               .names = {{"hidden_size", {"hidden_size", "d_model"}},
                         {"num_hidden_layers", {"num_hidden_layers", "n_layers"}},
                         {"num_attention_heads", {"num_attention_heads", "n_heads"}},
                         {"max_position_embeddings", {"max_seq_len"}},
                         {"rms_norm_eps", {"layer_norm_epsilon"}}},
               .unread = {"hidden_act", "intermediate_size", "num_key_value_heads", "head_dim"},
               .mlp_ratio = 4,
               .rope = RopeRule::kNone,
               .rope_layers = RopeLayers::kNone,
               .read = read}},
    .components = {{.prefixes = {"transformer."}, .rules = rules, .build = build}},
    .classifiers = {{"Mpt", early_score_head}},
    .gguf = {{.name = "mpt",
              .tables = {kMptGguf},
              .layer_norm = true,
              .own_keys = GgufOwnKeys::kMpt,
              .keys = {kContext, kEmbedding, kBlocks, kFeedForward, kHeads, kLayerNormEpsilon,
                       kClamp, kAlibiBias, kQuantizedFileType},
              .activation = Activation::kGelu,
              .turns_nothing = true,
              .rough_gelu = true,
              .equal_heads = true}}};

}  // namespace ferry::converters::families::mpt
