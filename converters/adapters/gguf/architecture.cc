#include "converters/adapters/gguf/architecture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "converters/adapters/gguf/names.h"
#include "converters/adapters/gguf/reading.h"

namespace ferry::converters {
namespace {

using namespace gguf_names;

constexpr double kTenth = 0.1;

// Kimi and the like; transformers 5 leaves the function out of the config of DeepSeek V3.
bool has_sigmoid_experts(const GgufReading& file) {
  constexpr int64_t kSigmoid = 2;
  const auto gating = file.integer("expert_gating_func", {0, INT32_MAX});
  if (gating && gating->value_or(0) > 0) return **gating == kSigmoid;
  return file.has("blk.{i}.exp_probs_b.bias");
}

bool has_experts(const GgufReading& file) {
  const auto experts = file.integer("expert_count", {0, INT32_MAX});
  return experts && experts->value_or(0) > 0;
}

bool has_shared_expert(const GgufReading& file) { return file.has("blk.{i}.ffn_up_shexp.weight"); }

// Olmo 3 goes by the name of Olmo 2.
bool has_windows(const GgufReading& file) {
  const auto window = file.integer("attention.sliding_window", {0, INT32_MAX});
  return window && window->value_or(0) > 0;
}

// Granite 4 without RoPE goes by the name of Granite 3.
bool turns_nothing(const GgufReading& file) {
  const auto turned = file.keys->fields.flag(file.keys->name("rope.scaling.finetuned"));
  return turned && !turned->value_or(true);
}

bool has_growing_queries(const GgufReading& file) {
  return file.states("attention.temperature_scale");
}

using KeyOrder = std::vector<GgufKey>;

KeyOrder with(KeyOrder keys, const KeyOrder& more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

const std::vector<GgufArchitecture>& architectures() {
  using enum GgufKey;
  static const KeyOrder kStandardKeys = {kStandard, kStatedHeadLengths, kFileType};
  const auto standard_and = [](const KeyOrder& more) { return with(kStandardKeys, more); };
  static const KeyOrder kLlamaKeys = standard_and({kVocabulary, kRopeDimension});
  static const KeyOrder kGraniteKeys = {kStandard, kFileType, kVocabulary, kRopeDimension,
                                        kMultipliers};
  static const KeyOrder kGemmaKeys = {kContext, kEmbedding,  kBlocks,      kFeedForward, kHeads,
                                      kKvHeads, kRmsEpsilon, kHeadLengths, kFileType};
  static const std::vector<std::string_view> kMlpBiases = {
      "blk.{i}.ffn_gate.bias", "blk.{i}.ffn_up.bias", "blk.{i}.ffn_down.bias"};
  constexpr std::string_view kOutputBias = "blk.{i}.attn_output.bias";
  static const std::vector<std::string_view> kBlockBiases = {kOutputBias, kMlpBiases[0],
                                                             kMlpBiases[1], kMlpBiases[2]};
  // Of several with one name, those that ask for more precede.
  static const std::vector<GgufArchitecture> kAll = {
      {.name = "gpt-oss",
       .model_type = "gpt_oss",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPostAttentionNorm, kGptOss,
                  kExperts, kExpertWeights},
       .normed_experts = true,
       .window_every = 2,
       .keys = standard_and({kWindow, kExpertSizes})},
      {.name = "deepseek2",
       .model_type = "deepseek_v3",
       .tables = {kFrame, kLatentAttention, kPreNorm, kMlp, kSharedExperts, kExperts,
                  kFusedExperts},
       .latent = true,
       .grouped_experts = true,
       .sigmoid_experts = true,
       .log_multiplier = kTenth,
       .predicting = "model.layers.",
       .is = has_sigmoid_experts,
       .read_keys = read_gguf_latent_attention},
      {.name = "deepseek2",
       .model_type = "deepseek_v2",
       .tables = {kFrame, kLatentAttention, kPreNorm, kMlp, kSharedExperts, kExperts,
                  kFusedExperts},
       .latent = true,
       .grouped_experts = true,
       .log_multiplier = kTenth,
       .predicting = "model.layers.",
       .read_keys = read_gguf_latent_attention},
      {.name = "phi2",
       .model_type = "phi",
       .tables = {kPhi2},
       .partial_rotary = true,
       .layer_norm = true,
       .keys = {kContext, kEmbedding, kFeedForward, kBlocks, kHeads, kKvHeads, kLayerNormEpsilon,
                kRopeDimension, kFileType, kNoBos, kOtherRopeBase},
       .activation = Activation::kGeluTanh,
       .equal_heads = true},
      {.name = "gpt2", .model_type = "gpt2", .tables = {kGpt2}, .layer_norm = true},
      {.name = "starcoder2",
       .model_type = "starcoder2",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kNormBiases,
                  kStarcoder2},
       .layer_norm = true,
       .keys = kStandardKeys,
       .activation = Activation::kGeluTanh},
      {.name = "gptneox",
       .model_type = "gpt_neox",
       .tables = {kGptNeoX},
       .partial_rotary = true,
       .layer_norm = true,
       .read_keys = read_gguf_parallel_residual},
      {.name = "command-r",
       .model_type = "cohere",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kMlp},
       .layer_norm = true,
       .logit_scale = true,
       .flags = {{"blk.{i}.attn_q_norm.weight", "use_qk_norm"}},
       .keys = standard_and({kLogitScale, kRopeScaling}),
       .qk_norm_layers = 64},
      {.name = "cohere2",
       .model_type = "cohere2",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kMlp},
       .layer_norm = true,
       .logit_scale = true,
       .window_every = 4,
       .keys = standard_and({kLogitScale, kWindow, kVocabulary, kRopeDimension, kRopeScaling}),
       .turns_windows = true},
      {.name = "glm4",
       .model_type = "glm4",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kGlm4Norms, kGateUp},
       .partial_rotary = true,
       .keys = standard_and({kRopeDimension})},
      {.name = "exaone4",
       .model_type = "exaone4",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kTwoPostNorms, kMlp},
       .window_every = 4,
       .keys = standard_and({kVocabulary, kWindow, kWindowPattern}),
       .rope_factors = true,
       .equal_heads = true,
       .turns_windows = true,
       .window_layers = 64},
      {.name = "granitehybrid",
       .model_type = "granitemoehybrid",
       .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kGraniteExperts, kMamba},
       .multipliers = true,
       .without_heads = "mamba",
       .flags = {{"blk.{i}.ssm_conv1d.bias", "mamba_conv_bias"},
                 {"blk.{i}.ssm_in.bias", "mamba_proj_bias"}},
       .read_keys = read_gguf_mamba},
      {.name = "granitemoe",
       .model_type = "granitemoehybrid",
       .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kGraniteExperts},
       .multipliers = true,
       .without_heads = "mamba",
       .is = has_shared_expert,
       .read_keys = read_gguf_mamba},
      {.name = "granitemoe",
       .model_type = "granitemoe",
       .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kGraniteExperts,
                  kExpertWeights},
       .multipliers = true,
       .normed_experts = true,
       .read_keys = read_gguf_experts_alone,
       .keys = kGraniteKeys,
       .rope_factors = true,
       .equal_heads = true},
      {.name = "granite",
       .model_type = "granitemoehybrid",
       .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kGraniteExperts},
       .multipliers = true,
       .without_heads = "mamba",
       .is = turns_nothing,
       .read_keys = read_gguf_mamba},
      {.name = "llama",
       .model_type = "mixtral",
       .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kMixtralExperts, kExperts,
                  kFusedExperts},
       .normed_experts = true,
       .is = has_experts,
       .keys = kLlamaKeys,
       .rope_factors = true},
      {.name = "olmo2",
       .model_type = "olmo3",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kTwoPostNorms, kMlp},
       .window_every = 4,
       .is = has_windows,
       .keys = standard_and({kWindow, kWindowPattern}),
       .unread = {kOutputBias},
       .own_head = true,
       .plain_windows = true},
      {.name = "olmoe",
       .model_type = "olmoe",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kExperts,
                  kFusedExperts},
       .keys = kStandardKeys,
       .unread = {kOutputBias},
       .own_head = true,
       .no_shared_heads = true},
      {.name = "seed_oss",
       .model_type = "seed_oss",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPostAttentionNorm, kMlp},
       .flags = {{"blk.{i}.attn_output.bias", "attention_out_bias"}},
       .keys = kStandardKeys,
       .unread = kBlockBiases},
      {.name = "ernie4_5",
       .model_type = "ernie4_5",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp},
       .keys = kStandardKeys,
       .unread = kMlpBiases},
      {.name = "hunyuan-dense",
       .model_type = "hunyuan_v1_dense",
       .tables = {kFrame, kHunyuan, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp},
       .keys = standard_and({kAlphaRope}),
       .unread = {kOutputBias}},
      {.name = "stablelm",
       .model_type = "stablelm",
       .tables = {kFrame, kStableLm, kAttention, kFusedAttention, kValueAndOutput, kPreNorm,
                  kNormBiases, kMlp},
       .partial_rotary = true,
       .layer_norm = true,
       .flags = {{"blk.{i}.attn_q_norm.weight", "qk_layernorm"}},
       .read_keys = read_gguf_parallel_residual,
       .keys = {kContext, kEmbedding, kBlocks, kFeedForward, kRopeDimension, kHeads, kKvHeads,
                kParallelResidual, kLayerNormEpsilon, kFileType, kOtherRopeBase},
       .equal_heads = true},
      {.name = "nemotron",
       .model_type = "nemotron",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kNormBiases,
                  kMlp},
       .shifted_norms = true,
       .partial_rotary = true,
       .layer_norm = true,
       .keys = standard_and({kVocabulary, kLayerNormEpsilon, kRopeDimension, kRopeScaling}),
       .activation = Activation::kRelu2,
       .equal_heads = true},
      {.name = "arcee",
       .model_type = "arcee",
       .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kMlp},
       .keys = kLlamaKeys,
       .unread = kBlockBiases,
       .activation = Activation::kRelu2,
       .rope_factors = true},
      {.name = "glm4moe",
       .model_type = "glm4_moe",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPostAttentionNorm, kMlp,
                  kSharedExperts, kExperts, kFusedExperts},
       .partial_rotary = true,
       .grouped_experts = true,
       .sigmoid_experts = true,
       .flags = {{"blk.{i}.attn_q_norm.weight", "use_qk_norm"}},
       .predicting = "model.layers."},
      {.name = "lfm2moe",
       .model_type = "lfm2_moe",
       .tables = {kLfm2, kLfm2Experts},
       .normed_experts = true,
       .sigmoid_experts = true,
       .without_heads = "conv",
       .flags = {{"blk.{i}.exp_probs_b.bias", "use_expert_bias"}},
       .read_keys = read_gguf_short_convs},
      {.name = "mistral3",
       .model_type = "ministral3",
       .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kMlp},
       .log_multiplier = 1,
       .is = has_growing_queries,
       .read_keys = read_gguf_growing_queries,
       .keys = with(kLlamaKeys, {kYarnMultiplier, kQueryGrowth}),
       .rope_factors = true},
      {.name = "gemma",
       .model_type = "gemma",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp},
       .shifted_norms = true,
       .keys = with(kGemmaKeys, {kOtherRopeBase}),
       .unread = {kOutputBias, "output.weight"},
       .activation = Activation::kGeluTanh},
      {.name = "llama",
       .model_type = "llama",
       .other_types = {"mistral"},
       .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kMlp},
       .keys = kLlamaKeys,
       .rope_factors = true},
      {.name = "qwen2",
       .model_type = "qwen2",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp},
       .keys = kStandardKeys},
      {.name = "qwen2moe",
       .model_type = "qwen2_moe",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp, kExperts,
                  kFusedExperts},
       .keys = standard_and({kExpertSizes}),
       .own_head = true},
      {.name = "qwen3",
       .model_type = "qwen3",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp},
       .keys = kStandardKeys,
       .unread = {kOutputBias}},
      {.name = "qwen3moe",
       .model_type = "qwen3_moe",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp, kExperts,
                  kFusedExperts},
       .normed_experts = true,
       .keys = standard_and({kExpertSizes}),
       .unread = {kOutputBias}},
      {.name = "qwen35",
       .model_type = "qwen3_5_text",
       .other_types = {"qwen3_5"},
       .tables = {kFrame, kAttention, kValueAndOutput, kPostAttentionNorm, kMlp, kTiledDeltaNet},
       .shifted_norms = true,
       .linear_attention = true,
       .keys = standard_and({kLinearAttention})},
      {.name = "qwen3next",
       .model_type = "qwen3_next",
       .tables = {kFrame, kAttention, kValueAndOutput, kPostAttentionNorm, kMlp, kExperts,
                  kFusedExperts, kGroupedDeltaNet},
       .shifted_norms = true,
       .linear_attention = true,
       .normed_experts = true,
       .keys = standard_and({kExpertSizes, kLinearAttention})},
      {.name = "gemma3",
       .model_type = "gemma3_text",
       .other_types = {"gemma3"},
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kFourNorms, kMlp},
       .shifted_norms = true,
       .sliding_pattern = true,
       .gemma = true,
       .layers_scaled_by_hidden = 62,
       .cuts_vocabulary = true,
       .keys = standard_and({kHeadLengths, kLogitSoftcap, kWindow}),
       .activation = Activation::kGeluTanh},
      {.name = "gemma2",
       .model_type = "gemma2",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kFourNorms, kMlp},
       .shifted_norms = true,
       .gemma = true,
       .layers_scaled_by_hidden = 46,
       .keys = with(kGemmaKeys, {kScoreSoftcap, kLogitSoftcap, kWindowOrNone, kOtherRopeBase}),
       .activation = Activation::kGeluTanh},
      {.name = "granite",
       .model_type = "granite",
       .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kMlp},
       .multipliers = true,
       .keys = kGraniteKeys,
       .rope_factors = true,
       .equal_heads = true},
      {.name = "olmo2",
       .model_type = "olmo2",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kTwoPostNorms, kMlp},
       .keys = kStandardKeys,
       .unread = {kOutputBias},
       .own_head = true},
      {.name = "phi3",
       .model_type = "phi3",
       .tables = {kFrame, kPackedProjections, kPreNorm},
       .partial_rotary = true,
       .keys = {kContext, kOriginalContext, kEmbedding, kFeedForward, kBlocks, kHeads, kKvHeads,
                kRmsEpsilon, kRopeDimension, kRopeBase, kFileType, kWindowOrNone},
       .equal_heads = true},
      {.name = "smollm3",
       .model_type = "smollm3",
       .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kMlp},
       .no_rope_interval = 4,
       .keys = kLlamaKeys,
       .unread = kBlockBiases,
       .rope_factors = true},
      {.name = "lfm2",
       .model_type = "lfm2",
       .tables = {kLfm2},
       .without_heads = "conv",
       .read_keys = read_gguf_short_convs,
       .keys = standard_and({kVocabulary, kShortConv}),
       .equal_heads = true},
      {.name = "qwen2vl",
       .model_type = "qwen2_5_vl_text",
       .other_types = {"qwen2_vl_text"},
       .tables = {kFrame, kAttention, kValueAndOutput, kPreNorm, kMlp},
       .keys = kStandardKeys},
      {.name = "qwen3vl",
       .model_type = "qwen3_vl_text",
       .tables = {kFrame, kAttention, kValueAndOutput, kPreNorm, kMlp},
       .keys = standard_and({kDeepstack}),
       .unread = {kOutputBias}},
      {.name = "qwen3vlmoe",
       .model_type = "qwen3_vl_moe_text",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kMlp, kExperts,
                  kFusedExperts, kExpertWeights},
       .normed_experts = true,
       .keys = standard_and({kExpertSizes, kDeepstack}),
       .unread = {kOutputBias}},
      {.name = "mistral3",
       .model_type = "mistral",
       .wrapper = "mistral3",
       .tables = {kFrame, kPairedAttention, kValueAndOutput, kPreNorm, kMlp},
       .keys = kLlamaKeys,
       .rope_factors = true},
      {.name = "chatglm",
       .model_type = "glm",
       .tables = {kFrame, kAttention, kFusedAttention, kValueAndOutput, kPreNorm, kGateUp},
       .partial_rotary = true,
       .keys = {kContext, kEmbedding, kFeedForward, kBlocks, kHeads, kKvHeads, kRmsEpsilon,
                kOtherHeadLengths, kFileType, kRopeDimension, kNoBos, kRopeBase},
       .equal_heads = true},
  };
  return kAll;
}

}  // namespace

bool GgufArchitecture::has_experts() const {
  for (const auto& table : tables) {
    for (const GgufName& row : table) {
      if (row.form.shape == GgufForm::Shape::kExperts) return true;
    }
  }
  return false;
}

bool GgufArchitecture::has_key(GgufKey key) const { return std::ranges::count(keys, key) > 0; }

std::vector<const GgufArchitecture*> find_gguf_architectures(std::string_view name) {
  std::vector<const GgufArchitecture*> found;
  for (const GgufArchitecture& architecture : architectures()) {
    if (architecture.name == name) found.push_back(&architecture);
  }
  return found;
}

const GgufArchitecture* gguf_architecture_of(const ModelConfig& config) {
  const GgufArchitecture* found = nullptr;
  for (const GgufArchitecture& architecture : architectures()) {
    const bool of_model = architecture.model_type == config.text_type ||
                          std::ranges::count(architecture.other_types, config.text_type) > 0;
    if (architecture.keys.empty() || !of_model) continue;
    if (architecture.wrapper == config.model_type) return &architecture;
    if (architecture.wrapper.empty() && found == nullptr) found = &architecture;
  }
  return found;
}

std::string gguf_architecture_names() {
  std::set<std::string_view> names;
  for (const GgufArchitecture& architecture : architectures()) names.insert(architecture.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace ferry::converters
