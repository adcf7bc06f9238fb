// Mamba-2: nothing but Mamba-2 blocks, each with a norm before it.
// Source: transformers, models/mamba2/modeling_mamba2.py.

#include "converters/blocks/decoder.h"
#include "converters/blocks/mamba.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::mamba2 {
namespace {

using namespace gguf_tables;
using enum GgufKey;

const GgufName kNames[] = {
    {"blk.{i}.ssm_a", "backbone.layers.{i}.mixer.A_log", kHeadNegExp},
    {"blk.{i}.ssm_d", "backbone.layers.{i}.mixer.D", kHeadValues},
    {"blk.{i}.ssm_dt.bias", "backbone.layers.{i}.mixer.dt_bias"},
    {"blk.{i}.ssm_norm.weight", "backbone.layers.{i}.mixer.norm.weight", kGroupRows},
};

Status read(const JsonFields& fields, ModelConfig& config) {
  config.intermediate_size = 0;
  return read_mamba(fields, config);
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat({backbone_rules(prefix), mamba_rules(prefix + "layers.{i}.mixer.", config)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_single_blocks(config, options, mamba_mixer);
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "mamba2",
               .defaults = R"({"vocab_size": 32768, "hidden_size": 4096, "num_hidden_layers": 64,
                               "intermediate_size": 1, "num_attention_heads": 1,
                               "max_position_embeddings": 1048576, "rms_norm_eps": 1e-5,
                               "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_n_groups": 8,
                               "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2,
                               "mamba_conv_bias": true})",
               .names = {{"rms_norm_eps", {"layer_norm_epsilon"}},
                         {"mamba_n_heads", {"num_heads"}},
                         {"mamba_d_head", {"head_dim"}},
                         {"mamba_n_groups", {"n_groups"}},
                         {"mamba_d_state", {"state_size"}},
                         {"mamba_d_conv", {"conv_kernel"}},
                         {"mamba_expand", {"expand"}},
                         {"mamba_conv_bias", {"use_conv_bias"}},
                         {"mamba_proj_bias", {"use_bias"}}},
               .unread = {"intermediate_size", "num_attention_heads", "num_key_value_heads",
                          "max_position_embeddings", "head_dim"},
               .rope = RopeRule::kNone,
               .mamba = true,
               .rope_layers = RopeLayers::kNone,
               .read = read}},
    .components = {{.prefixes = {"backbone."}, .rules = rules, .build = build}},
    .gguf = {{.name = "mamba2",
              .tokenizer_keys = {.sentence_piece = true},
              .tables = {kBackbone, kNames},
              .states_alone = true,
              .flags = {{"blk.{i}.ssm_conv1d.bias", "mamba_conv_bias"},
                        {"blk.{i}.ssm_in.bias", "mamba_proj_bias"}},
              .own_keys = GgufOwnKeys::kMamba2,
              .keys = {kContext, kEmbedding, kFeedForward, kHeads, kBlocks, kStateSizes,
                       kRmsEpsilon, kFileType},
              .unread = {"blk.{i}.ssm_in.bias", "blk.{i}.ssm_out.bias"},
              .turns_nothing = true}}};

}  // namespace ferry::converters::families::mamba2
