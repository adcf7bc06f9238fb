// Parakeet with CTC: a FastConformer over log-mel frames, whose rows have an output for each token
// and for a blank. Source: transformers, models/parakeet/modeling_parakeet.py.

#include <fmt/format.h>

#include <bit>

#include "converters/blocks/conformer.h"
#include "converters/config/config_parts.h"
#include "converters/families/families.h"
#include "converters/keys/standard_keys.h"
#include "converters/keys/vision_tower_keys.h"

namespace ferry::converters::families::parakeet {
namespace {

constexpr IntRange kMelRange = {1, 1024}, kKernelRange = {1, 255}, kStrideRange = {1, 16},
                   kFactorRange = {2, 256};
constexpr const char* kKernel = "subsampling_conv_kernel_size";
constexpr const char* kTimeKernel = "conv_kernel_size";

// With an even kernel the reference hides other frames than the padding, or fails.
Result<int64_t> odd_kernel(const JsonFields& fields, const char* key) {
  const int64_t kernel = FERRY_TRY(fields.required(key, kKernelRange));
  if (kernel % 2 == 1) return kernel;
  return fields.error(ErrorCode::kUnsupported, key, fmt::format("is {}, an even number", kernel));
}

Status read_subsampling(const JsonFields& fields, int64_t mel_bins, ConformerConfig& out) {
  out.channels = FERRY_TRY(fields.required("subsampling_conv_channels", kSizeRange));
  out.kernel = FERRY_TRY(odd_kernel(fields, kKernel));
  out.stride = FERRY_TRY(fields.required("subsampling_conv_stride", kStrideRange));
  const auto factor =
      static_cast<uint64_t>(FERRY_TRY(fields.required("subsampling_factor", kFactorRange)));
  out.convolutions = std::bit_width(factor) - 1;
  // The reference takes the quotient for the number of bins that the convolutions leave.
  int64_t quotient = mel_bins;
  for (int64_t i = 0; i < out.convolutions; ++i) quotient /= out.stride;
  if (quotient == out.bins(mel_bins)) return {};
  return fields.error(ErrorCode::kUnsupported, "num_mel_bins",
                      fmt::format("is {}, of which the convolutions make {} bins, and not {}: the "
                                  "reference fails",
                                  mel_bins, out.bins(mel_bins), quotient));
}

Status check_heads(const JsonFields& fields, const ModelConfig& config) {
  if (config.num_kv_heads == config.num_heads) return {};
  return fields.error(ErrorCode::kUnsupported, "num_key_value_heads",
                      fmt::format("is {}, another number than num_attention_heads {}",
                                  config.num_kv_heads, config.num_heads));
}

Status read(const JsonFields& fields, ModelConfig& config) {
  FERRY_RETURN_IF_ERROR(check_heads(fields, config));
  if (config.hidden_size % 2 != 0) {
    return fields.error(ErrorCode::kUnsupported, "hidden_size",
                        fmt::format("is {}, an odd number", config.hidden_size));
  }
  AudioConfig& audio = config.audio.emplace();
  audio.mel_bins = FERRY_TRY(fields.required("num_mel_bins", kMelRange));
  audio.num_layers = config.num_layers;
  audio.num_heads = config.num_heads;
  audio.head_dim = config.head_dim;
  audio.intermediate_size = config.intermediate_size;
  audio.activation = config.activation;
  audio.query_bias = audio.key_bias = audio.value_bias = audio.output_bias = config.attention_bias;
  ConformerConfig& out = audio.conformer.emplace();
  // Without it generate() of the reference fails.
  out.blank = FERRY_TRY(fields.required("pad_token_id", {0, kSizeRange.max}));
  out.mlp_bias = config.attention_bias;
  out.convolution_bias = FERRY_TRY(fields.flag_or("convolution_bias", true));
  out.scale_input = FERRY_TRY(fields.flag_or("scale_input", true));
  out.time_kernel = FERRY_TRY(odd_kernel(fields, kTimeKernel));
  return read_subsampling(fields, audio.mel_bins, out);
}

// The layers of the reference are a convolution and its activation, then for each further one a
// convolution, a mixture and the activation.
std::vector<KeyRule> subsampling_rules(const std::string& prefix, const ConformerConfig& c) {
  std::vector<KeyRule> rules = tower_rules(
      prefix, 0, {{"layers.0", "audio.convolutions.0"}, {"linear", "audio.subsampling"}});
  for (int64_t i = 1; i < c.convolutions; ++i) {
    const std::string filters = fmt::format("layers.{}", 3 * i - 1);
    const std::string target = fmt::format("audio.convolutions.{}", i);
    rules = concat(
        {rules, tower_rules(prefix, 0, {{filters.c_str(), target.c_str()}}),
         matrix_rules(prefix + fmt::format("layers.{}", 3 * i), fmt::format("audio.mixtures.{}", i),
                      {c.channels, c.channels, 1, 1}, 0, /*bias=*/true)});
  }
  return rules;
}

std::vector<KeyRule> linear_rules(const std::string& prefix, int64_t layers, bool bias,
                                  std::initializer_list<Rename> table) {
  if (bias) return tower_rules(prefix, layers, table);
  std::vector<KeyRule> rules;
  for (const Rename& row : table) {
    const std::string from = row.source + std::string(".weight"),
                      to = row.target + std::string(".weight");
    rules = concat({rules, tower_renames(prefix, layers, {{from.c_str(), to.c_str()}})});
  }
  return rules;
}

std::vector<KeyRule> attention_rules(const std::string& layer, const ModelConfig& config) {
  const int64_t layers = config.num_layers;
  return concat(
      {linear_rules(layer, layers, config.attention_bias,
                    {{"self_attn.q_proj", "audio.layers.{i}.attention.wq"},
                     {"self_attn.k_proj", "audio.layers.{i}.attention.wk"},
                     {"self_attn.v_proj", "audio.layers.{i}.attention.wv"},
                     {"self_attn.o_proj", "audio.layers.{i}.attention.wo"},
                     {"feed_forward1.linear1", "audio.layers.{i}.first_mlp.w1"},
                     {"feed_forward1.linear2", "audio.layers.{i}.first_mlp.w2"},
                     {"feed_forward2.linear1", "audio.layers.{i}.second_mlp.w1"},
                     {"feed_forward2.linear2", "audio.layers.{i}.second_mlp.w2"}}),
       tower_renames(
           layer, layers,
           {{"self_attn.relative_k_proj.weight", "audio.layers.{i}.attention.relative_wk.weight"},
            {"self_attn.bias_u", "audio.layers.{i}.attention.content_bias"},
            {"self_attn.bias_v", "audio.layers.{i}.attention.position_bias"}})});
}

std::vector<KeyRule> convolution_rules(const std::string& layer, const ModelConfig& config) {
  const int64_t layers = config.num_layers, size = config.hidden_size;
  const bool bias = config.audio->conformer->convolution_bias;
  const std::string target = "audio.layers.{i}.convolution";
  KeyRule counter = drop_rule(layer + "conv.norm.num_batches_tracked", "a count of training");
  counter.layers = layers;
  return concat(
      {matrix_rules(layer + "conv.pointwise_conv1", target + ".w1", {2 * size, size, 1}, layers,
                    bias),
       matrix_rules(layer + "conv.pointwise_conv2", target + ".w2", {size, size, 1}, layers, bias),
       linear_rules(layer, layers, bias,
                    {{"conv.depthwise_conv", "audio.layers.{i}.convolution.filters"}}),
       tower_rules(layer, layers, {{"conv.norm", "audio.layers.{i}.convolution.batch_norm"}}),
       tower_renames(
           layer, layers,
           {{"conv.norm.running_mean", "audio.layers.{i}.convolution.batch_norm.mean"},
            {"conv.norm.running_var", "audio.layers.{i}.convolution.batch_norm.variance"}}),
       {std::move(counter)}});
}

std::vector<KeyRule> rules(const ModelConfig& config, const std::string& prefix) {
  const std::string layer = prefix + "encoder.layers.{i}.";
  return concat({subsampling_rules(prefix + "encoder.subsampling.", *config.audio->conformer),
                 attention_rules(layer, config), convolution_rules(layer, config),
                 tower_rules(layer, config.num_layers,
                             {{"norm_feed_forward1", "audio.layers.{i}.first_norm"},
                              {"norm_self_att", "audio.layers.{i}.attention_norm"},
                              {"norm_conv", "audio.layers.{i}.convolution_norm"},
                              {"norm_feed_forward2", "audio.layers.{i}.second_norm"},
                              {"norm_out", "audio.layers.{i}.norm"}}),
                 matrix_rules(prefix + "ctc_head", "ctc_head",
                              {config.vocab_size, config.hidden_size, 1}, 0, /*bias=*/true)});
}

}  // namespace

const FamilySpec kFamily = {
    .types = {{.name = "parakeet_ctc",
               .part = {"encoder_config", "parakeet_encoder", {"vocab_size", "pad_token_id"}},
               .defaults = R"({"vocab_size": 1025, "pad_token_id": 1024, "hidden_size": 1024,
                               "num_hidden_layers": 24, "num_attention_heads": 8,
                               "intermediate_size": 4096, "hidden_act": "silu",
                               "attention_bias": true, "conv_kernel_size": 9,
                               "subsampling_factor": 8, "subsampling_conv_channels": 256,
                               "num_mel_bins": 80, "subsampling_conv_kernel_size": 3,
                               "subsampling_conv_stride": 2, "max_position_embeddings": 5000})",
               .unread = {"rms_norm_eps", "tie_word_embeddings"},
               .rope = RopeRule::kNone,
               .attention_bias = true,
               .two_way = TwoWayRule::kAlways,
               .rope_layers = RopeLayers::kNone,
               .read = read}},
    .components = {{.role = kAudioEncoderRole,
                    .prefixes = {""},
                    .heads = {},
                    .rules = rules,
                    .build = build_conformer}}};

}  // namespace ferry::converters::families::parakeet
