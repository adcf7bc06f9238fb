// Falcon-H1: attention and Mamba-2 side by side in every layer, and multipliers of inputs and
// outputs of all parts.
// Source: transformers, models/falcon_h1/modeling_falcon_h1.py.

#include <algorithm>
#include <cmath>

#include "converters/blocks/decoder.h"
#include "converters/blocks/mamba.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::falcon_h1 {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr FloatRange kMultiplierRange = {-1e6, 1e6};

// Reads a list of `count` multipliers; all are 1 where the config states none.
Result<std::vector<double>> multipliers(const JsonFields& fields, const char* key, size_t count) {
  auto stated = FERRY_TRY(fields.numbers(key, kMultiplierRange));
  if (!stated) return std::vector<double>(count, 1.0);
  if (stated->size() == count) return *std::move(stated);
  return fields.bad(key, "does not have one number for each part");
}

Status read_multipliers(const JsonFields& fields, ModelConfig& config) {
  ScalarConfig& out = config.scalars;
  const std::pair<const char*, double*> scalars[] = {
      {"embedding_multiplier", &out.embedding},
      {"lm_head_multiplier", &out.logits},
      {"attention_in_multiplier", &out.attention_in},
      {"attention_out_multiplier", &out.attention_out},
      {"ssm_in_multiplier", &out.mamba_in},
      {"ssm_out_multiplier", &out.mamba_out}};
  for (const auto& [key, scalar] : scalars) {
    *scalar = FERRY_TRY(fields.number_or(key, kMultiplierRange, 1.0));
  }
  // Keys that are multiplied make scores that are multiplied.
  const double keys = FERRY_TRY(fields.number_or("key_multiplier", kMultiplierRange, 1.0));
  if (keys != 1.0) out.attention = keys / std::sqrt(static_cast<double>(config.head_dim));
  const auto mlp = FERRY_TRY(multipliers(fields, "mlp_multipliers", 2));
  out.mlp_gate = mlp[0];
  out.mlp_out = mlp[1];
  const auto parts = FERRY_TRY(multipliers(fields, "ssm_multipliers", 5));
  if (std::ranges::count(parts, 1.0) < 5) config.mamba.multipliers = parts;
  return {};
}

Status read(const JsonFields& fields, ModelConfig& config) {
  const auto inner = FERRY_TRY(fields.integer("mamba_d_ssm", kSizeRange));
  FERRY_RETURN_IF_ERROR(read_mamba(fields, config, inner));
  MambaConfig& mamba = config.mamba;
  mamba.out_bias = FERRY_TRY(fields.flag_or("projectors_bias", false));
  const bool before = FERRY_TRY(fields.flag_or("mamba_norm_before_gate", false));
  mamba.norm = before ? MambaConfig::Norm::kBeforeGate : MambaConfig::Norm::kBehindGate;
  if (!FERRY_TRY(fields.flag_or("mamba_rms_norm", false))) mamba.norm = MambaConfig::Norm::kNone;
  return read_multipliers(fields, config);
}

Result<std::vector<LayerType>> layers(const JsonFields&, const ModelConfig& config) {
  return std::vector(static_cast<size_t>(config.num_layers), LayerType::kMambaAndAttention);
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat(
      {mamba_decoder_rules(config, prefix), mamba_rules(prefix + "layers.{i}.mamba.", config)});
}

// The multipliers of a model become a part of its weights. They are one step each, as in the
// converter, which rounds every product.
using Factors = std::vector<double>;

Factors key_factors(const ModelConfig& c) {
  const double root = std::sqrt(static_cast<double>(c.head_dim));
  return {c.scalars.attention.value_or(1 / root) * root, c.scalars.attention_in};
}

std::vector<float> mamba_rows(const ModelConfig& c) {
  std::vector<double> parts = c.mamba.multipliers;
  parts.resize(5, 1.0);
  const int64_t inner = c.mamba.inner(), group = c.mamba.groups * c.mamba.state;
  const int64_t sizes[] = {inner, inner, group, group, c.mamba.heads};
  std::vector<float> rows;
  for (size_t i = 0; i < parts.size(); ++i) {
    rows.insert(rows.end(), static_cast<size_t>(sizes[i]), static_cast<float>(parts[i]));
  }
  return rows;
}

constexpr GgufForm kInputOfAttention = {
    .factors = [](const ModelConfig& c) { return Factors{c.scalars.attention_in}; }};
constexpr GgufForm kKeys = {.factors = key_factors};
constexpr GgufForm kOutputOfAttention = {
    .factors = [](const ModelConfig& c) { return Factors{c.scalars.attention_out}; }};
constexpr GgufForm kGate = {
    .factors = [](const ModelConfig& c) { return Factors{c.scalars.mlp_gate}; }};
constexpr GgufForm kDown = {
    .factors = [](const ModelConfig& c) { return Factors{c.scalars.mlp_out}; }};
constexpr GgufForm kMambaInput = {
    .factors = [](const ModelConfig& c) { return Factors{c.scalars.mamba_in}; },
    .row_factors = mamba_rows};
constexpr GgufForm kMambaOutput = {
    .factors = [](const ModelConfig& c) { return Factors{c.scalars.mamba_out}; }};
constexpr GgufForm kEmbeddingTable = {
    .factors = [](const ModelConfig& c) { return Factors{c.scalars.embedding}; }};
constexpr GgufForm kHead = {
    .factors = [](const ModelConfig& c) { return Factors{c.scalars.logits}; }};
constexpr GgufForm kOtherSpelling = {.read_only = true};

// Writers give the norm of the MLP no ".weight".
const GgufName kFalconGguf[] = {
    {"token_embd.weight", "model.embed_tokens.weight", kEmbeddingTable},
    {"output_norm.weight", "model.final_layernorm.weight"},
    {"output.weight", "lm_head.weight", kHead},
    {"blk.{i}.attn_q.weight", "model.layers.{i}.self_attn.q_proj.weight", kInputOfAttention},
    {"blk.{i}.attn_k.weight", "model.layers.{i}.self_attn.k_proj.weight", kKeys},
    {"blk.{i}.attn_v.weight", "model.layers.{i}.self_attn.v_proj.weight", kInputOfAttention},
    {"blk.{i}.attn_output.weight", "model.layers.{i}.self_attn.o_proj.weight", kOutputOfAttention},
    {"blk.{i}.attn_norm.weight", "model.layers.{i}.input_layernorm.weight"},
    {"blk.{i}.ffn_norm", "model.layers.{i}.pre_ff_layernorm.weight"},
    {"blk.{i}.ffn_norm.weight", "model.layers.{i}.pre_ff_layernorm.weight", kOtherSpelling},
    {"blk.{i}.ffn_gate.weight", "model.layers.{i}.feed_forward.gate_proj.weight", kGate},
    {"blk.{i}.ffn_up.weight", "model.layers.{i}.feed_forward.up_proj.weight"},
    {"blk.{i}.ffn_down.weight", "model.layers.{i}.feed_forward.down_proj.weight", kDown},
    {"blk.{i}.ssm_in.weight", "model.layers.{i}.mamba.in_proj.weight", kMambaInput},
    {"blk.{i}.ssm_conv1d.weight", "model.layers.{i}.mamba.conv1d.weight", kConv},
    {"blk.{i}.ssm_conv1d.bias", "model.layers.{i}.mamba.conv1d.bias"},
    {"blk.{i}.ssm_a", "model.layers.{i}.mamba.A_log", kHeadNegExp},
    {"blk.{i}.ssm_d", "model.layers.{i}.mamba.D", kHeadValues},
    {"blk.{i}.ssm_dt.bias", "model.layers.{i}.mamba.dt_bias"},
    {"blk.{i}.ssm_norm.weight", "model.layers.{i}.mamba.norm.weight", kGroupRows},
    {"blk.{i}.ssm_out.weight", "model.layers.{i}.mamba.out_proj.weight", kMambaOutput},
};

ValueId scaled(GraphBuilder& b, ValueId x, double factor) {
  return factor == 1.0 ? x : b.mul(x, factor);
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  const ScalarConfig& s = config.scalars;
  const bool bias = config.attention_bias;
  const AttentionStyle style = {.qkv_bias = bias, .output_bias = bias};
  return build_decoder(
      config, options, [&](GraphBuilder& b, const DecoderContext& c, ValueId x, int64_t layer) {
        const ValueId held = mamba_mixer(b, c, scaled(b, x, s.mamba_in), layer);
        const ValueId seen = attention(b, c, scaled(b, x, s.attention_in), layer, style);
        const ValueId first = scaled(b, held, s.mamba_out);
        return b.add(first, scaled(b, seen, s.attention_out));
      });
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "falcon_h1",
               .defaults = R"({"vocab_size": 128000, "hidden_size": 4096,
                               "intermediate_size": 14336, "num_hidden_layers": 32,
                               "num_attention_heads": 32, "num_key_value_heads": 8,
                               "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
                               "mamba_d_ssm": 1024, "mamba_n_heads": 128, "mamba_d_head": "auto",
                               "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4,
                               "mamba_expand": 2, "mamba_conv_bias": true,
                               "mamba_norm_before_gate": true, "lm_head_multiplier": 1.0,
                               "embedding_multiplier": 1.0, "key_multiplier": 1.0,
                               "attention_in_multiplier": 1.0, "attention_out_multiplier": 1.0,
                               "ssm_in_multiplier": 1.0, "ssm_out_multiplier": 1.0})",
               .names = {{"layer_types", {"layers_block_type", "layer_types"}}},
               .attention_bias = true,
               .mlp_bias = true,
               .mamba = true,
               .layers = layers,
               .read = read}},
    .components = {{.rules = rules, .build = build}},
    .gguf = {
        {.name = "falcon-h1",
         .tables = {kFalconGguf},
         .own_keys = GgufOwnKeys::kFalconH1,
         .keys = {kVocabulary, kContext, kEmbedding, kBlocks, kHeads, kHeadLengths, kMamba2Sizes,
                  kFileType, kFeedForward, kKvHeads, kRopeDimension, kRopeBase, kRmsEpsilon}}}};

}  // namespace ferry::converters::families::falcon_h1
