// Nemotron-H: every layer is one block: Mamba-2, attention without RoPE, an MLP without a gate, or
// experts without gates.
// Source: transformers, models/nemotron_h/modeling_nemotron_h.py.

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "converters/blocks/decoder.h"
#include "converters/blocks/mamba.h"
#include "converters/config/config_parts.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/expert_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::nemotron_h {
namespace {

using namespace gguf_tables;
using enum GgufKey;

enum class Block { kMamba, kAttention, kMlp, kExperts };

constexpr const char* kListKey = "layers_block_type";
constexpr const char* kPatternKey = "hybrid_override_pattern";

Result<std::vector<Block>> listed_blocks(const JsonFields& fields, const nlohmann::json& list) {
  constexpr std::pair<std::string_view, Block> kNames[] = {{"linear_attention", Block::kMamba},
                                                           {"mamba", Block::kMamba},
                                                           {"full_attention", Block::kAttention},
                                                           {"attention", Block::kAttention},
                                                           {"mlp", Block::kMlp},
                                                           {"moe", Block::kExperts}};
  std::vector<Block> blocks;
  if (!list.is_array()) return fields.bad(kListKey, "is not an array");
  for (const nlohmann::json& item : list) {
    const auto known =
        std::ranges::find_if(kNames, [&](const auto& row) { return item == row.first; });
    if (known == std::end(kNames)) return fields.bad(kListKey, "has an unknown type");
    blocks.push_back(known->second);
  }
  return blocks;
}

Result<std::vector<Block>> patterned_blocks(const JsonFields& fields, const std::string& pattern) {
  std::vector<Block> blocks;
  for (const char letter : pattern) {
    constexpr std::string_view kLetters = "M*-E";
    const size_t at = kLetters.find(letter);
    if (at == std::string_view::npos) return fields.bad(kPatternKey, "has an unknown letter");
    blocks.push_back(static_cast<Block>(at));
  }
  return blocks;
}

// The list decides, then the pattern. Without either the class has four layers.
Result<std::vector<Block>> blocks_of(const JsonFields& fields) {
  std::vector<Block> blocks = {Block::kMamba, Block::kExperts, Block::kAttention, Block::kMlp};
  const auto pattern = FERRY_TRY(fields.text(kPatternKey));
  if (const nlohmann::json* list = fields.find(kListKey)) {
    blocks = FERRY_TRY(listed_blocks(fields, *list));
  } else if (pattern) {
    blocks = FERRY_TRY(patterned_blocks(fields, *pattern));
  }
  if (!blocks.empty() && std::ssize(blocks) <= kLayerRange.max) return blocks;
  return fields.bad(kListKey, fmt::format("has {} layers", blocks.size()));
}

Status read_own_experts(const JsonFields& fields, ModelConfig& config) {
  MoeConfig& moe = config.moe;
  if (config.activation != Activation::kRelu2) {
    return fields.error(ErrorCode::kUnsupported, "mlp_hidden_act",
                        "of experts: only relu2 is supported");
  }
  moe.gated = false;
  moe.experts = FERRY_TRY(fields.required("n_routed_experts", {1, kExpertRange.max}));
  moe.per_token = FERRY_TRY(fields.required("num_experts_per_tok", {1, kExpertRange.max}));
  moe.expert_size = FERRY_TRY(fields.required("moe_intermediate_size", kSizeRange));
  moe.shared_size = FERRY_TRY(fields.required("moe_shared_expert_intermediate_size", kSizeRange));
  moe.latent_size = FERRY_TRY(fields.integer("moe_latent_size", kSizeRange)).value_or(0);
  moe.shared_gate = false;
  moe.scores = MoeConfig::Scores::kSigmoid;
  moe.choice_bias = true;
  moe.norm_top_scores = FERRY_TRY(fields.flag_or("norm_topk_prob", true));
  moe.norm_epsilon = 1e-20;
  moe.scale = FERRY_TRY(fields.number_or("routed_scaling_factor", kScaleRange, 1.0));
  moe.groups = FERRY_TRY(fields.required("n_group", kHeadRange));
  moe.top_groups = FERRY_TRY(fields.required("topk_group", kHeadRange));
  moe.group_best = 2;
  const int64_t size = moe.experts / moe.groups;
  if (moe.experts % moe.groups != 0 || size < moe.group_best) {
    return fields.bad(
        "n_group", fmt::format("does not make groups of two and more of {} experts", moe.experts));
  }
  if (moe.top_groups > moe.groups) return fields.bad("topk_group", "is more than n_group");
  if (moe.per_token > moe.top_groups * size) {
    return fields.bad("num_experts_per_tok", "is more than the experts of the chosen groups");
  }
  return {};
}

Status read(const JsonFields& fields, ModelConfig& config) {
  const std::vector<Block> blocks = FERRY_TRY(blocks_of(fields));
  config.num_layers = std::ssize(blocks);
  for (const Block block : blocks) config.moe.layers.push_back(block == Block::kExperts);
  if (std::ranges::count(blocks, Block::kExperts) > 0) {
    FERRY_RETURN_IF_ERROR(read_own_experts(fields, config));
  } else {
    config.moe.layers.clear();
  }
  if (std::ranges::count(blocks, Block::kMamba) == 0) return {};
  const int64_t count = FERRY_TRY(fields.required("mamba_n_heads", kHeadRange));
  const int64_t size = FERRY_TRY(fields.required("mamba_d_head", kHeadDimRange));
  FERRY_RETURN_IF_ERROR(read_mamba(fields, config, count * size));
  config.mamba.activation = FERRY_TRY(read_activation(fields, "mamba_hidden_act", "silu"));
  config.mamba.least_step = FERRY_TRY(fields.number_or("time_step_min", {0.0, 1e6}, 0.001));
  return {};
}

Result<std::vector<LayerType>> layers(const JsonFields& fields, const ModelConfig&) {
  std::vector<LayerType> types;
  for (const Block block : FERRY_TRY(blocks_of(fields))) {
    types.push_back(block == Block::kMamba       ? LayerType::kMamba
                    : block == Block::kAttention ? LayerType::kFullAttention
                                                 : LayerType::kNoMixer);
  }
  return types;
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string mixer = prefix + "layers.{i}.mixer.";
  std::vector<KeyRule> all =
      concat({mamba_rules(mixer, config), backbone_rules(prefix),
              rename_rules(mixer, {{"q_proj.weight", "layers.{i}.attention.wq.weight"},
                                   {"k_proj.weight", "layers.{i}.attention.wk.weight"},
                                   {"v_proj.weight", "layers.{i}.attention.wv.weight"},
                                   {"o_proj.weight", "layers.{i}.attention.wo.weight"}}),
              parameter_rules(mixer, config.mlp_bias,
                              {{"up_proj", "layers.{i}.feed_forward.w1"},
                               {"down_proj", "layers.{i}.feed_forward.w2"}})});
  if (config.moe.experts == 0) return all;
  all = concat(
      {all, plain_expert_rules(mixer + "experts."),
       rename_rules(mixer,
                    {{"gate.weight", "layers.{i}.feed_forward.gate.weight"},
                     {"gate.e_score_correction_bias", "layers.{i}.feed_forward.gate.choice_bias"}}),
       parameter_rules(mixer, config.mlp_bias,
                       {{"shared_experts.up_proj", "layers.{i}.feed_forward.shared.w1"},
                        {"shared_experts.down_proj", "layers.{i}.feed_forward.shared.w2"}})});
  if (config.moe.latent_size == 0) return all;
  return concat(
      {all, parameter_rules(mixer, config.mlp_bias,
                            {{"fc1_latent_proj", "layers.{i}.feed_forward.latent_in"},
                             {"fc2_latent_proj", "layers.{i}.feed_forward.latent_out"}})});
}

const GgufName kNemotronGguf[] = {
    {"token_embd.weight", "model.embeddings.weight"},
    {"output_norm.weight", "model.norm_f.weight"},
    {"output.weight", "lm_head.weight"},
    {"blk.{i}.attn_norm.weight", "model.layers.{i}.norm.weight"},
    {"blk.{i}.attn_q.weight", "model.layers.{i}.mixer.q_proj.weight"},
    {"blk.{i}.attn_k.weight", "model.layers.{i}.mixer.k_proj.weight"},
    {"blk.{i}.attn_v.weight", "model.layers.{i}.mixer.v_proj.weight"},
    {"blk.{i}.attn_output.weight", "model.layers.{i}.mixer.o_proj.weight"},
    {"blk.{i}.ffn_up.weight", "model.layers.{i}.mixer.up_proj.weight"},
    {"blk.{i}.ffn_down.weight", "model.layers.{i}.mixer.down_proj.weight"},
    {"blk.{i}.ssm_in.weight", "model.layers.{i}.mixer.in_proj.weight"},
    {"blk.{i}.ssm_conv1d.weight", "model.layers.{i}.mixer.conv1d.weight", kConv},
    {"blk.{i}.ssm_conv1d.bias", "model.layers.{i}.mixer.conv1d.bias"},
    {"blk.{i}.ssm_a", "model.layers.{i}.mixer.A_log", kHeadNegExp},
    {"blk.{i}.ssm_d", "model.layers.{i}.mixer.D", kHeadValues},
    {"blk.{i}.ssm_dt.bias", "model.layers.{i}.mixer.dt_bias"},
    {"blk.{i}.ssm_norm.weight", "model.layers.{i}.mixer.norm.weight", kGroupRows},
    {"blk.{i}.ssm_out.weight", "model.layers.{i}.mixer.out_proj.weight"},
};

KeyOrder nemotron_keys(const KeyOrder& more = {}) {
  KeyOrder keys = {kVocabulary,       kContext,      kEmbedding, kBlocks,
                   kLayerFeedForward, kHeads,        kKvHeads,   kHeadLengths,
                   kMamba2Sizes,      kBothEpsilons, kFileType};
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

constexpr GgufName kNemotronExpertsGguf[] = {
    {"blk.{i}.ffn_gate_inp.weight", "model.layers.{i}.mixer.gate.weight"},
    {"blk.{i}.exp_probs_b.bias", "model.layers.{i}.mixer.gate.e_score_correction_bias"},
    {"blk.{i}.ffn_up_exps.weight", "model.layers.{i}.mixer.experts.{e}.up_proj.weight", kStacked},
    {"blk.{i}.ffn_down_exps.weight", "model.layers.{i}.mixer.experts.{e}.down_proj.weight",
     kStacked},
    {"blk.{i}.ffn_up_shexp.weight", "model.layers.{i}.mixer.shared_experts.up_proj.weight"},
    {"blk.{i}.ffn_down_shexp.weight", "model.layers.{i}.mixer.shared_experts.down_proj.weight"},
    {"blk.{i}.ffn_latent_down.weight", "model.layers.{i}.mixer.fc1_latent_proj.weight"},
    {"blk.{i}.ffn_latent_up.weight", "model.layers.{i}.mixer.fc2_latent_proj.weight"},
};

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_single_blocks(
      config, options, [&](GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
        const std::string prefix = layer_name(layer, "feed_forward");
        switch (config.layer_types[static_cast<size_t>(layer)]) {
          case LayerType::kMamba:
            return mamba_mixer(b, c, x, layer);
          case LayerType::kFullAttention:
            return attention(b, c, x, layer, {});
          default:
            return config.has_experts(layer) ? sparse_mlp(b, c, x, layer, prefix)
                                             : plain_mlp(b, config, x, prefix, config.mlp_bias);
        }
      });
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "nemotron_h",
               .defaults = R"({"vocab_size": 131072, "hidden_size": 4096,
                               "intermediate_size": 21504, "num_hidden_layers": 1,
                               "num_attention_heads": 32, "num_key_value_heads": 8,
                               "head_dim": 128, "max_position_embeddings": 4096,
                               "rms_norm_eps": 1e-5, "hidden_act": "relu2",
                               "n_routed_experts": 8, "num_experts_per_tok": 2,
                               "moe_intermediate_size": 7688,
                               "moe_shared_expert_intermediate_size": 7688, "n_group": 1,
                               "topk_group": 1, "mamba_n_heads": 128, "mamba_d_head": 64,
                               "mamba_n_groups": 8, "mamba_d_state": 128, "mamba_d_conv": 4,
                               "mamba_expand": 2, "mamba_conv_bias": true})",
               .names = {{"rms_norm_eps", {"layer_norm_epsilon"}},
                         {"hidden_act", {"mlp_hidden_act"}},
                         {"n_routed_experts", {"n_routed_experts", "num_local_experts"}},
                         {kListKey, {kListKey, "layer_types"}},
                         {"mamba_n_heads", {"mamba_num_heads"}},
                         {"mamba_d_head", {"mamba_head_dim"}},
                         {"mamba_n_groups", {"mamba_n_groups", "n_groups"}},
                         {"mamba_d_state", {"ssm_state_size"}},
                         {"mamba_d_conv", {"mamba_d_conv", "conv_kernel"}},
                         {"mamba_conv_bias", {"mamba_conv_bias", "use_conv_bias"}},
                         {"time_step_min", {"mamba_dt_min", "time_step_min"}},
                         {"mamba_proj_bias", {"use_bias"}}},
               .unread = {"num_hidden_layers", "tie_word_embeddings", "layer_types",
                          "time_step_limit", "mamba_expand"},
               .rope = RopeRule::kNone,
               .mlp_bias = true,
               .mamba = true,
               .layers = layers,
               .rope_layers = RopeLayers::kNone,
               .read = read}},
    .components = {{.prefixes = {"model.", "backbone."}, .rules = rules, .build = build}},
    .dropped = {{"mtp.*", "multi-token prediction: not part of the model's output"}},
    .gguf = {{.name = "nemotron_h",
              .tables = {kNemotronGguf},
              .without_heads = "mamba",
              .own_keys = GgufOwnKeys::kNemotronH,
              .keys = nemotron_keys(),
              .writes = [](const ModelConfig& c) { return c.moe.experts == 0; },
              .activation = Activation::kRelu2,
              .turns_nothing = true},
             {.name = "nemotron_h_moe",
              .tables = {kNemotronGguf, kNemotronExpertsGguf},
              .without_heads = "mamba",
              .own_keys = GgufOwnKeys::kNemotronH,
              .keys = nemotron_keys({kExpertCounts, kExpertLength, kSharedLength, kOneSharedExpert,
                                     kExpertNorm, kExpertScale, kExpertGroups, kExpertGating,
                                     kLatentExperts}),
              .writes = [](const ModelConfig& c) { return c.moe.experts > 0; },
              .activation = Activation::kRelu2,
              .turns_nothing = true}}};

}  // namespace ferry::converters::families::nemotron_h
