// Mamba and Falcon Mamba: nothing but Mamba blocks, each with a norm before it. Falcon Mamba
// normalises B, C and the input of the time steps.
// Source: transformers, models/mamba/modeling_mamba.py, models/falcon_mamba.

#include "converters/blocks/mamba.h"
#include "converters/blocks/decoder.h"
#include "converters/blocks/selective_scan.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::mamba {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr GgufName kNames[] = {
    {"blk.{i}.ssm_a", "backbone.layers.{i}.mixer.A_log", kNegExp},
    {"blk.{i}.ssm_d", "backbone.layers.{i}.mixer.D"},
    {"blk.{i}.ssm_dt.bias", "backbone.layers.{i}.mixer.dt_proj.bias"},
    {"blk.{i}.ssm_dt.weight", "backbone.layers.{i}.mixer.dt_proj.weight"},
    {"blk.{i}.ssm_x.weight", "backbone.layers.{i}.mixer.x_proj.weight"},
};

constexpr std::string_view kDefaults =
    R"({"vocab_size": 50280, "hidden_size": 768, "num_hidden_layers": 32, "intermediate_size": 1,
        "num_attention_heads": 1, "max_position_embeddings": 1048576, "rms_norm_eps": 1e-5,
        "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_dt_rank": "auto",
        "mamba_conv_bias": true, "tie_word_embeddings": true})";

Status read(const JsonFields& fields, ModelConfig& config) {
  config.intermediate_size = 0;
  return read_selective_scan(fields, config);
}

Status read_normed(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(read(fields, config));
  config.mamba.inner_norms = true;
  config.mamba.norm_eps = FERRY_TRY(fields.number_or("mixer_rms_eps", kEpsRange, 1e-6));
  return {};
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {backbone_rules(prefix), selective_scan_rules(prefix + "layers.{i}.mixer.", config)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  return build_single_blocks(config, options, selective_scan);
}

ModelType type_of(std::string_view name, Status (*read)(const JsonFields&, ModelConfig&)) {
  return {.name = name,
          .defaults = kDefaults,
          .names = {{"rms_norm_eps", {"layer_norm_epsilon"}},
                    {"mamba_d_state", {"state_size"}},
                    {"mamba_d_conv", {"conv_kernel"}},
                    {"mamba_expand", {"expand"}},
                    {"mamba_dt_rank", {"time_step_rank"}},
                    {"mamba_conv_bias", {"use_conv_bias"}},
                    {"mamba_proj_bias", {"use_bias"}}},
          .unread = {"intermediate_size", "num_attention_heads", "num_key_value_heads",
                     "max_position_embeddings", "head_dim"},
          .rope = RopeRule::kNone,
          .mamba = true,
          .rope_layers = RopeLayers::kNone,
          .read = read};
}

GgufArchitecture architecture_of(std::string_view type, GgufSign sign) {
  return {.name = "mamba",
          .tokenizer_keys = {.sentence_piece = true},
          .model_type = type,
          .tables = {kBackbone, kNames},
          .states_alone = true,
          .flags = {{"blk.{i}.ssm_conv1d.bias", "mamba_conv_bias"},
                    {"blk.{i}.ssm_in.bias", "mamba_proj_bias"}},
          .sign = sign,
          .own_keys = GgufOwnKeys::kSelectiveScan,
          .keys = {kContext, kEmbedding, kFeedForward, kHeads, kBlocks, kStateSizes, kRmsEpsilon,
                   kInnerNorms, kFileType},
          .unread = {"blk.{i}.ssm_in.bias", "blk.{i}.ssm_out.bias"},
          .turns_nothing = true};
}

}  // namespace

const FamilySpec kFamily = {
    .types = {type_of("mamba", read), type_of("falcon_mamba", read_normed)},
    .components = {{.prefixes = {"backbone."}, .rules = rules, .build = build}},
    .gguf = {architecture_of("mamba", GgufSign::kNone),
             architecture_of("falcon_mamba", GgufSign::kInnerNorms)}};

}  // namespace ferry::converters::families::mamba
