#include "converters/keys/gemma4_audio_keys.h"

#include "converters/keys/standard_keys.h"

namespace ferry::converters {
namespace {

struct Gemma4Linear {
  const char *source, *target;
};
constexpr Gemma4Linear kAudioLinears[] = {
    {"feed_forward1.ffw_layer_1", "first_mlp.w1"},  {"feed_forward1.ffw_layer_2", "first_mlp.w2"},
    {"feed_forward2.ffw_layer_1", "second_mlp.w1"}, {"feed_forward2.ffw_layer_2", "second_mlp.w2"},
    {"self_attn.q_proj", "attention.wq"},           {"self_attn.k_proj", "attention.wk"},
    {"self_attn.v_proj", "attention.wv"},           {"self_attn.post", "attention.wo"},
    {"lconv1d.linear_start", "convolution.w1"},     {"lconv1d.linear_end", "convolution.w2"}};

// A linear layer may have the limits of its input and its output beside its weight.
std::vector<KeyRule> held_linear_rules(const std::string& layer, const AudioConfig& audio) {
  std::vector<KeyRule> all;
  for (const Gemma4Linear& linear : kAudioLinears) {
    const auto add = [&](const char* from, const char* to) {
      const std::string source = linear.source + std::string(from);
      const std::string target = std::string("audio.layers.{i}.") + linear.target + to;
      all =
          concat({all, tower_renames(layer, audio.num_layers, {{source.c_str(), target.c_str()}})});
    };
    add(".linear.weight", ".weight");
    if (!audio.usm->clips) continue;
    for (const char* limit : {".input_min", ".input_max", ".output_min", ".output_max"}) {
      add(limit, limit);
    }
  }
  return all;
}

}  // namespace

std::vector<KeyRule> gemma4_audio_rules(const std::string& tower, const std::string& embedder,
                                        const ModelConfig& config) {
  const AudioConfig& audio = *config.audio;
  const std::string layer = tower + "layers.{i}.", front = tower + "subsample_conv_projection.";
  return concat(
      {tower_renames(front, 0,
                     {{"layer0.conv.weight", "audio.convolutions.0.weight"},
                      {"layer0.norm.weight", "audio.convolutions.0.norm.weight"},
                      {"layer1.conv.weight", "audio.convolutions.1.weight"},
                      {"layer1.norm.weight", "audio.convolutions.1.norm.weight"},
                      {"input_proj_linear.weight", "audio.subsampling.weight"}}),
       held_linear_rules(layer, audio),
       tower_renames(
           layer, audio.num_layers,
           {{"feed_forward1.pre_layer_norm.weight", "audio.layers.{i}.first_norm.weight"},
            {"feed_forward1.post_layer_norm.weight", "audio.layers.{i}.post_first_norm.weight"},
            {"feed_forward2.pre_layer_norm.weight", "audio.layers.{i}.second_norm.weight"},
            {"feed_forward2.post_layer_norm.weight", "audio.layers.{i}.post_second_norm.weight"},
            {"norm_pre_attn.weight", "audio.layers.{i}.attention_norm.weight"},
            {"norm_post_attn.weight", "audio.layers.{i}.post_attention_norm.weight"},
            {"lconv1d.pre_layer_norm.weight", "audio.layers.{i}.convolution_norm.weight"},
            {"lconv1d.conv_norm.weight", "audio.layers.{i}.convolution.norm.weight"},
            {"norm_out.weight", "audio.layers.{i}.norm.weight"},
            {"self_attn.relative_k_proj.weight", "audio.layers.{i}.attention.relative_wk.weight"},
            {"self_attn.per_dim_scale", "audio.layers.{i}.attention.dim_scale"},
            {"lconv1d.depthwise_conv1d.weight", "audio.layers.{i}.convolution.filters.weight"}}),
       tower_rules(tower, 0, {{"output_proj", "audio.output"}}),
       tower_renames(embedder, 0, {{"embedding_projection.weight", "audio.connector.w1.weight"}})});
}

}  // namespace ferry::converters
