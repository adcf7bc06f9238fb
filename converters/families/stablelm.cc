// StableLM: Llama with layer norms and RoPE over a part of each head. Where the config says so, q,
// k and v have biases, every head of q and k has a norm of its own, and attention and MLP read the
// same norm and are added side by side. Source: transformers, models/stablelm/modeling_stablelm.py.

#include "converters/blocks/decoder.h"
#include "converters/config/type_parts.h"
#include "converters/families/families.h"
#include "converters/families/gguf_tables.h"
#include "converters/keys/layout_keys.h"
#include "converters/keys/standard_keys.h"

namespace ferry::converters::families::stablelm {
namespace {

using namespace gguf_tables;
using enum GgufKey;

constexpr GgufForm kHeadNorms = {.shape = GgufForm::Shape::kHeads};

constexpr GgufName kStableLmGguf[] = {
    {"blk.{i}.attn_q_norm.weight", "model.layers.{i}.self_attn.q_layernorm.norms.{e}.weight",
     kHeadNorms},
    {"blk.{i}.attn_k_norm.weight", "model.layers.{i}.self_attn.k_layernorm.norms.{e}.weight",
     kHeadNorms},
};

constexpr const char* kQkNorm = "qk_norm";

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  return concat({standard_matrix_rules(prefix), standard_layer_norm_rules(prefix),
                 bias_rules(prefix, config.attention_bias, /*output=*/false, /*mlp=*/false),
                 separate_head_norm_rules(prefix + "layers.{i}.self_attn.", config)});
}

Result<Methods> build(const ModelConfig& config, const BuildOptions& options) {
  using enum AttentionStyle::QkNorm;
  const auto qk_norm = config.number(kQkNorm) > 0 ? kLayerByHead : kNone;
  const bool parallel = config.number(kParallelResidual) > 0;
  return build_styled_decoder(config, options,
                              {.attention = {.qkv_bias = config.attention_bias, .qk_norm = qk_norm},
                               .residuals = parallel ? Residuals::kOneNorm : Residuals::kInTurn,
                               .gated = true});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "stablelm",
               .defaults = R"({"vocab_size": 50304, "intermediate_size": 6912, "hidden_size": 2560,
                               "num_hidden_layers": 32, "num_attention_heads": 32,
                               "num_key_value_heads": 32, "max_position_embeddings": 4096,
                               "rms_norm_eps": 1e-5, "partial_rotary_factor": 0.25})",
               .names = {{"rms_norm_eps", {"layer_norm_eps"}},
                         {"attention_bias", {"use_qkv_bias"}}},
               .flags = {{"qk_layernorm", kQkNorm}, {"use_parallel_residual", kParallelResidual}},
               .partial_rope = true,
               .attention_bias = true,
               .read = check_whole_heads}},
    .components = {{.rules = rules, .build = build}},
    .classifiers = {{"StableLm", score_head}},
    .gguf = {{.name = "stablelm",
              .tables = {kFrame, kStableLmGguf, kAttention, kFusedAttention, kValueAndOutput,
                         kPreNorm, kNormBiases, kMlp},
              .partial_rotary = true,
              .layer_norm = true,
              .flags = {{"blk.{i}.attn_q_norm.weight", "qk_layernorm"}},
              .own_keys = GgufOwnKeys::kParallel,
              .keys = {kContext, kEmbedding, kBlocks, kFeedForward, kRopeDimension, kHeads,
                       kKvHeads, kParallelBlocks, kLayerNormEpsilon, kFileType, kOtherRopeBase},
              .own_head = true,
              .equal_heads = true}}};

}  // namespace ferry::converters::families::stablelm
