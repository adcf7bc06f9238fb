#include "converters/blocks/audio_encoder.h"

#include <fmt/format.h>

#include <utility>

#include "converters/blocks/attention.h"
#include "converters/blocks/audio_front.h"
#include "converters/blocks/granite_audio.h"
#include "converters/blocks/usm_audio.h"
#include "core/program_interface.h"

namespace ferry::converters {
namespace {

// The epsilon of the layer norms in the reference, whatever the config says.
constexpr double kAudioNormEps = 1e-5;

std::string audio_layer(int64_t layer, const char* part) {
  return fmt::format("audio.layers.{}.{}", layer, part);
}

ValueId self_attention(GraphBuilder& b, const ModelConfig& config, const AudioRows& rows, ValueId x,
                       int64_t layer) {
  const AudioConfig& a = *config.audio;
  const std::string prefix = audio_layer(layer, "attention");
  const int64_t size = config.audio_width(), head = a.head_dim;
  const auto project = [&](const char* name, bool bias) {
    const ValueId y = projection(b, x, prefix + name, size, a.num_heads * head, bias);
    return b.view(y, {batch(), rows.count, heads(a.num_heads), head_dim(head)});
  };
  ValueId q = project(".wq", a.query_bias);
  ValueId k = project(".wk", a.key_bias);
  const ValueId v = project(".wv", a.value_bias);
  if (rows.rope.cos.valid()) {
    q = rope(b, rows.rope, q);
    k = rope(b, rows.rope, k);
  }
  const ValueId mixed = b.sdpa_full(q, k, v);
  const ValueId joined = b.view(mixed, {batch(), rows.count, features(a.num_heads * head)});
  return projection(b, joined, prefix + ".wo", a.num_heads * head, size, a.output_bias);
}

ValueId audio_mlp(GraphBuilder& b, const ModelConfig& config, ValueId x, int64_t layer) {
  const std::string prefix = audio_layer(layer, "feed_forward");
  const int64_t wide = config.audio->intermediate_size;
  const int64_t size = config.audio_width();
  const ValueId inner = projection(b, x, prefix + ".w1", size, wide, /*bias=*/true);
  return projection(b, activate(b, config.audio->activation, inner), prefix + ".w2", wide, size,
                    /*bias=*/true);
}

// Makes rows of the text decoder: f32 [1,positions,width] becomes [1,positions / group,
// hidden_size].
ValueId rows_of_text(GraphBuilder& b, const ModelConfig& config, ValueId x) {
  const SoundRowsConfig& rows = *config.audio->to_rows;
  const int64_t joined = rows.group * rows.width, width = config.hidden_size;
  x = b.view(x, {batch(), positions(config.audio->row_count()), features(joined)});
  x = projection(b, x, "audio.connector.w1", joined, width, /*bias=*/false);
  x = activate(b, rows.activation, x);
  return projection(b, x, "audio.connector.w2", width, width, /*bias=*/false);
}

}  // namespace

Result<Methods> build_audio_encoder(const ModelConfig& config, const BuildOptions& options) {
  const AudioConfig& a = *config.audio;
  if (a.usm) return build_usm_audio(config, options);
  if (a.granite) return build_granite_audio(config, options);
  GraphBuilder b(static_cast<int32_t>(a.num_layers));
  const AudioRows rows = audio_front(b, config, options);
  ValueId x = rows.x;
  const auto normed = [&](const std::string& name) {
    return norm(b, a.norm_bias ? NormKind::kLayer : NormKind::kLayerNoBias, x, name, kAudioNormEps);
  };
  for (int64_t layer = 0; layer < a.num_layers; ++layer) {
    b.probe(fmt::format("encoder_hidden_states.{}", layer), x);
    b.set_layer(static_cast<int32_t>(layer));
    x = b.add(x,
              self_attention(b, config, rows, normed(audio_layer(layer, "attention_norm")), layer));
    x = b.add(x, audio_mlp(b, config, normed(audio_layer(layer, "ffn_norm")), layer));
  }
  b.set_layer(static_cast<int32_t>(a.num_layers));
  x = normed("audio.norm");
  b.probe("encoder_last_hidden_state", x);
  if (a.to_rows) {
    b.output(rows_of_text(b, config, x), std::string(kAudioFeaturesPort));
  } else {
    cross_keys_and_values(b, config, x, rows.count);
  }
  graph::Graph graph = FERRY_TRY(b.finish());
  Methods methods;
  methods.push_back({std::string(kForwardMethod), std::move(graph)});
  return methods;
}

}  // namespace ferry::converters
