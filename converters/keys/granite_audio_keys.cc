#include "converters/keys/granite_audio_keys.h"

#include <fmt/format.h>

#include "converters/keys/vision_tower_keys.h"

namespace ferry::converters {
namespace {

std::vector<KeyRule> encoder_layer_rules(const std::string& layer, const AudioConfig& audio) {
  const int64_t layers = audio.num_layers, width = audio.to_rows->width;
  const int64_t inner = audio.granite->inner;
  const std::string convolution = "audio.layers.{i}.convolution";
  KeyRule counter = drop_rule(layer + "conv.batch_norm.num_batches_tracked", "a count of training");
  counter.layers = layers;
  return concat(
      {tower_rules(layer, layers,
                   {{"ff1.pre_norm", "audio.layers.{i}.first_norm"},
                    {"ff1.up_proj", "audio.layers.{i}.first_mlp.w1"},
                    {"ff1.down_proj", "audio.layers.{i}.first_mlp.w2"},
                    {"ff2.pre_norm", "audio.layers.{i}.second_norm"},
                    {"ff2.up_proj", "audio.layers.{i}.second_mlp.w1"},
                    {"ff2.down_proj", "audio.layers.{i}.second_mlp.w2"},
                    {"attn.pre_norm", "audio.layers.{i}.attention_norm"},
                    {"attn.to_out", "audio.layers.{i}.attention.wo"},
                    {"conv.norm", "audio.layers.{i}.convolution_norm"},
                    {"conv.batch_norm", "audio.layers.{i}.convolution.batch_norm"},
                    {"post_norm", "audio.layers.{i}.norm"}}),
       tower_renames(
           layer, layers,
           {{"attn.to_q.weight", "audio.layers.{i}.attention.wq.weight"},
            {"attn.to_kv.weight", "audio.layers.{i}.attention.wkv.weight"},
            {"attn.rel_pos_emb.weight", "audio.layers.{i}.attention.distances.weight"},
            {"conv.depth_conv.conv.weight", "audio.layers.{i}.convolution.filters.weight"},
            {"conv.batch_norm.running_mean", "audio.layers.{i}.convolution.batch_norm.mean"},
            {"conv.batch_norm.running_var", "audio.layers.{i}.convolution.batch_norm.variance"}}),
       matrix_rules(layer + "conv.up_conv", convolution + ".w1", {2 * inner, width, 1}, layers,
                    /*bias=*/true),
       matrix_rules(layer + "conv.down_conv", convolution + ".w2", {width, inner, 1}, layers,
                    /*bias=*/true),
       {std::move(counter)}});
}

std::vector<KeyRule> projector_attention_rules(const std::string& layer, const char* part,
                                               const std::string& target, int64_t number) {
  const std::string attention = layer + part;
  const auto to = [&](const char* name) { return target + name; };
  std::vector<KeyRule> all;
  for (const auto& [from, name] : {std::pair{".attention.query", ".wq"},
                                   {".attention.key", ".wk"},
                                   {".attention.value", ".wv"},
                                   {".output.dense", ".wo"},
                                   {".output.LayerNorm", ".norm"}}) {
    const std::string source = attention + from, renamed = to(name);
    all = concat({all, tower_rules("", number, {{source.c_str(), renamed.c_str()}})});
  }
  return all;
}

}  // namespace

std::vector<KeyRule> granite_audio_rules(const std::string& prefix, const ModelConfig& config) {
  const AudioConfig& audio = *config.audio;
  std::vector<KeyRule> all = concat({tower_rules(prefix, 0, {{"input_linear", "audio.input"}}),
                                     encoder_layer_rules(prefix + "layers.{i}.", audio)});
  if (audio.num_layers > 1) {
    return concat(
        {all, tower_rules(prefix, 0, {{"out", "audio.labels"}, {"out_mid", "audio.from_labels"}})});
  }
  for (const char* name : {"out.*", "out_mid.*"}) {
    all.push_back(drop_rule(prefix + name, "labels: one layer has no middle"));
  }
  return all;
}

std::vector<KeyRule> window_projector_rules(const std::string& prefix, const ModelConfig& config) {
  const WindowProjectorConfig& p = config.audio->granite->projector;
  const std::string layer = prefix + "qformer.encoder.layer.{i}.";
  const std::string target = "audio.projector.layers.{i}.";
  std::vector<KeyRule> all = concat(
      {tower_renames(prefix, 0, {{"query", "audio.projector.queries"}}),
       tower_rules(
           prefix, 0,
           {{"qformer.layernorm", "audio.projector.norm"}, {"linear", "audio.projector.output"}}),
       projector_attention_rules(layer, "attention", target + "attention", p.num_layers),
       tower_rules(layer, p.num_layers,
                   {{"intermediate_query.dense", "audio.projector.layers.{i}.feed_forward.w1"},
                    {"output_query.dense", "audio.projector.layers.{i}.feed_forward.w2"},
                    {"output_query.LayerNorm", "audio.projector.layers.{i}.feed_forward.norm"}})});
  for (int64_t i = 0; i < p.num_layers; i += p.frequency) {
    all = concat({all, projector_attention_rules(
                           fmt::format("{}qformer.encoder.layer.{}.", prefix, i), "crossattention",
                           fmt::format("audio.projector.layers.{}.cross_attention", i), 0)});
  }
  if (!p.text_layers) return all;
  for (const std::string name : {"intermediate.dense", "output.dense", "output.LayerNorm"}) {
    for (const char* parameter : {".weight", ".bias"}) {
      KeyRule unused =
          drop_rule(layer + name + parameter, "MLP for tokens of text: there are none");
      unused.layers = p.num_layers;
      all.push_back(std::move(unused));
    }
  }
  return all;
}

}  // namespace ferry::converters
