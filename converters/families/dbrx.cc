// DBRX: layer norms without biases, limits of queries, keys and values, and experts in every layer.
// The sizes of attention and of experts are in objects of their own in a config.
// Source: transformers, models/dbrx/modeling_dbrx.py.

#include <fmt/format.h>

#include "converters/blocks/decoder.h"
#include "converters/config/config_parts.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/undo_keys.h"

namespace ferry::converters::families::dbrx {
namespace {

using namespace gguf_tables;
using enum GgufKey;

Status read_attention(const JsonFields& fields, ModelConfig& config) {
  config.num_kv_heads = 1;
  const auto attention = FERRY_TRY(fields.object("attn_config"));
  if (!attention) return {};
  config.num_kv_heads = FERRY_TRY(attention->integer_or("kv_n_heads", kHeadRange, 1));
  config.scalars.qkv_clip = FERRY_TRY(attention->number("clip_qkv", {0.0, kScaleRange.max}));
  return {};
}

Status read_router(const JsonFields& experts, MoeConfig& moe) {
  const std::string_view key = "moe_normalize_expert_weights";
  const auto power = FERRY_TRY(experts.number(key, {-kScaleRange.max, kScaleRange.max}));
  moe.norm_top_scores = power.has_value() || !experts.states(key);
  if (power.value_or(1.0) == 1.0) return {};
  return experts.error(ErrorCode::kUnsupported, key,
                       fmt::format("is {}; 1 and null are supported", *power));
}

Status read_act(const JsonFields& experts, ModelConfig& config) {
  const auto stated = FERRY_TRY(experts.object("ffn_act_fn"));
  if (!stated) return {};
  config.activation = FERRY_TRY(read_activation(*stated, "name", "silu"));
  if (config.activation != Activation::kRelu2 && config.activation != Activation::kQuickGelu) {
    return {};
  }
  return stated->error(ErrorCode::kUnsupported, "name", "is not supported for experts");
}

Status read_experts(const JsonFields& experts, ModelConfig& config) {
  MoeConfig& moe = config.moe;
  moe.experts = FERRY_TRY(experts.integer_or("moe_num_experts", {1, kExpertRange.max}, 4));
  moe.per_token = FERRY_TRY(experts.integer_or("moe_top_k", {1, kExpertRange.max}, 1));
  moe.expert_size = FERRY_TRY(experts.integer_or("ffn_hidden_size", kSizeRange, 3584));
  moe.layers.assign(static_cast<size_t>(config.num_layers), true);
  if (moe.per_token > moe.experts) {
    return experts.bad("moe_top_k", fmt::format("is {} of {}", moe.per_token, moe.experts));
  }
  FERRY_RETURN_IF_ERROR(read_router(experts, moe));
  return read_act(experts, config);
}

Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(check_whole_heads(fields, config));
  FERRY_RETURN_IF_ERROR(read_attention(fields, config));
  return read_experts(*FERRY_TRY(fields.object_or_default("ffn_config")), config);
}

// All experts are in one matrix, (experts * size, hidden), and the last one is transposed.
KeyRule expert_rule(const std::string& source, const char* matrix, bool transposed) {
  KeyRule rule;
  rule.name = transposed ? "transpose experts" : "split experts";
  rule.source = source;
  rule.expected_shape = [](const ModelConfig& c) {
    return Shape{c.moe.experts * c.moe.expert_size, c.hidden_size};
  };
  RuleTarget& target = rule.targets.emplace_back();
  target.name = std::string("layers.{i}.feed_forward.experts.") + matrix + ".weight";
  target.elements = transposed;
  target.shape = [transposed](const ModelConfig& c) {
    const int64_t size = c.moe.expert_size, hidden = c.hidden_size;
    return transposed ? Shape{c.moe.experts, hidden, size} : Shape{c.moe.experts, size, hidden};
  };
  target.rows = [transposed](const ModelConfig& c) {
    const int64_t size = c.moe.expert_size, hidden = c.hidden_size;
    if (!transposed) return RowOrder{run_piece(0, 0, c.moe.experts * size)};
    return RowOrder{
        {.offset = 0, .axes = {{c.moe.experts, size * hidden}, {hidden, 1}, {size, hidden}}}};
  };
  return rule;
}

std::vector<KeyRule> rules(const ModelConfig&, const std::string& prefix) {
  const std::string layer = prefix + "blocks.{i}.", attention = layer + "norm_attn_norm.";
  const std::string experts = layer + "ffn.experts.mlp.";
  return concat(
      {packed_qkv_rules(attention + "attn.Wqkv", /*bias=*/false, PackedLayout::kConcatenated),
       rename_rules(attention, {{"attn.out_proj.weight", "layers.{i}.attention.wo.weight"},
                                {"norm_1.weight", "layers.{i}.attention_norm.weight"},
                                {"norm_2.weight", "layers.{i}.ffn_norm.weight"}}),
       {expert_rule(experts + "w1", "w1", false), expert_rule(experts + "v1", "w3", false),
        expert_rule(experts + "w2", "w2", true)},
       dialect_rules(
           stacked_expert_rules(layer + "ffn.experts.{e}.", "w1.weight", "v1.weight", "w2.weight")),
       rename_rules(layer, {{"ffn.router.layer.weight", "layers.{i}.feed_forward.gate.weight"}}),
       rename_rules(prefix,
                    {{"wte.weight", "tok_embeddings.weight"}, {"norm_f.weight", "norm.weight"}})});
}

constexpr GgufName kDbrxGguf[] = {
    {"token_embd.weight", "transformer.wte.weight"},
    {"output_norm.weight", "transformer.norm_f.weight"},
    {"output.weight", "lm_head.weight"},
    {"blk.{i}.attn_norm.weight", "transformer.blocks.{i}.norm_attn_norm.norm_1.weight"},
    {"blk.{i}.attn_qkv.weight", "transformer.blocks.{i}.norm_attn_norm.attn.Wqkv.weight"},
    {"blk.{i}.attn_output.weight", "transformer.blocks.{i}.norm_attn_norm.attn.out_proj.weight"},
    {"blk.{i}.attn_output_norm.weight", "transformer.blocks.{i}.norm_attn_norm.norm_2.weight"},
    {"blk.{i}.ffn_gate_inp.weight", "transformer.blocks.{i}.ffn.router.layer.weight"},
    {"blk.{i}.ffn_gate_exps.weight", "transformer.blocks.{i}.ffn.experts.{e}.w1.weight", kStacked},
    {"blk.{i}.ffn_up_exps.weight", "transformer.blocks.{i}.ffn.experts.{e}.v1.weight", kStacked},
    {"blk.{i}.ffn_down_exps.weight", "transformer.blocks.{i}.ffn.experts.{e}.w2.weight", kStacked},
};

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_styled_decoder(config, options, {.norm = NormKind::kLayerNoBias});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "dbrx",
               .defaults = R"({"vocab_size": 32000, "hidden_size": 2048, "num_hidden_layers": 24,
                               "num_attention_heads": 16, "max_position_embeddings": 2048,
                               "intermediate_size": 3584, "rms_norm_eps": 1e-5,
                               "ffn_config": {}})",
               .names = {{"hidden_size", {"d_model", "hidden_size"}},
                         {"num_hidden_layers", {"n_layers", "num_hidden_layers"}},
                         {"num_attention_heads", {"n_heads", "num_attention_heads"}},
                         {"max_position_embeddings", {"max_seq_len", "max_position_embeddings"}}},
               .unread = {"intermediate_size", "num_key_value_heads", "rms_norm_eps", "head_dim"},
               .activation_key = "",
               .read = read}},
    .components = {{.prefixes = {"transformer."}, .rules = rules, .build = build}},
    .gguf = {{.name = "dbrx",
              .tables = {kDbrxGguf, kExpertWeights},
              .normed_experts = true,
              .layer_norm = true,
              .own_keys = GgufOwnKeys::kDbrx,
              .keys = {kBlocks, kContext, kEmbedding, kFeedForward, kHeads, kKvHeads, kRopeBase,
                       kClamp, kExpertCounts, kLayerNormEpsilon, kFileType},
              .own_head = true}}};

}  // namespace ferry::converters::families::dbrx
