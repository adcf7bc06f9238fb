#include "converters/keys/audio_encoder_keys.h"

#include "converters/keys/standard_keys.h"

namespace ferry::converters {

std::vector<KeyRule> whisper_encoder_rules(const std::string& prefix, const ModelConfig& config) {
  const AudioConfig& audio = *config.audio;
  const int64_t width = config.audio_width();
  const std::string layer = prefix + "layers.{i}.";
  return concat(
      {conv1d_window_rules(prefix + "conv1", "audio.conv1", width, audio.mel_bins, 3),
       conv1d_window_rules(prefix + "conv2", "audio.conv2", width, width, 3),
       tower_renames(prefix, 0, {{"embed_positions.weight", "audio.positions.weight"}}),
       tower_rules(layer, audio.num_layers,
                   {{"self_attn_layer_norm", "audio.layers.{i}.attention_norm"},
                    {"self_attn.q_proj", "audio.layers.{i}.attention.wq"},
                    {"self_attn.v_proj", "audio.layers.{i}.attention.wv"},
                    {"self_attn.out_proj", "audio.layers.{i}.attention.wo"},
                    {"final_layer_norm", "audio.layers.{i}.ffn_norm"},
                    {"fc1", "audio.layers.{i}.feed_forward.w1"},
                    {"fc2", "audio.layers.{i}.feed_forward.w2"}}),
       tower_renames(layer, audio.num_layers,
                     {{"self_attn.k_proj.weight", "audio.layers.{i}.attention.wk.weight"}}),
       tower_rules(prefix, 0, {{"layer_norm", "audio.norm"}})});
}

}  // namespace ferry::converters
