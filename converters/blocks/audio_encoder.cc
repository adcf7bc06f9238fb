#include "converters/blocks/audio_encoder.h"

#include <fmt/format.h>

#include <utility>

#include "converters/blocks/attention.h"
#include "core/program_interface.h"

namespace ferry::converters {
namespace {

// The epsilon of the layer norms in the reference, whatever the config says.
constexpr double kAudioNormEps = 1e-5;

std::string audio_layer(int64_t layer, const char* part) {
  return fmt::format("audio.layers.{}.{}", layer, part);
}

ValueId row_of_zeros(GraphBuilder& b, int64_t width) {
  return b.literal(DType::kF32, {batch(), positions(1), features(width)},
                   graph::zero_literal(static_cast<uint64_t>(width) * sizeof(float)));
}

// Puts the three rows around each row side by side: [1,n,width] -> [1,n,3 width], with rows of
// zeros before the first and behind the last one.
ValueId windows(GraphBuilder& b, ValueId x, int64_t rows, int64_t width) {
  const ValueId edge = row_of_zeros(b, width);
  const ValueId before = b.cat({edge, b.slice(x, 1, 0, rows - 1)}, 1);
  const ValueId after = b.cat({b.slice(x, 1, 1, rows), edge}, 1);
  return b.cat({before, x, after}, 2);
}

// Puts rows 2t - 1, 2t and 2t + 1 side by side: [1,n,width] -> [1,n / 2,3 width], with a row of
// zeros before the first.
ValueId every_second_window(GraphBuilder& b, ValueId x, int64_t rows, int64_t width) {
  const auto pairs = [&](ValueId all) {
    return b.view(all, {batch(), positions(rows / 2), features(2 * width)});
  };
  const ValueId shifted = pairs(b.cat({row_of_zeros(b, width), b.slice(x, 1, 0, rows - 1)}, 1));
  const ValueId before = b.slice(shifted, 2, 0, width);
  return b.cat({before, pairs(x)}, 2);
}

// A convolution over time is a product with the windows of rows.
ValueId convolve(GraphBuilder& b, const AudioConfig& a, int64_t width, ValueId frames) {
  const ValueId rows =
      b.view(b.permute(frames, {0, 2, 1}), {batch(), positions(a.frames()), features(a.mel_bins)});
  ValueId x = projection(b, windows(b, rows, a.frames(), a.mel_bins), "audio.conv1", 3 * a.mel_bins,
                         width, /*bias=*/true);
  x = activate(b, Activation::kGelu, x);
  x = projection(b, every_second_window(b, x, a.frames(), width), "audio.conv2", 3 * width, width,
                 /*bias=*/true);
  return activate(b, Activation::kGelu, x);
}

ValueId self_attention(GraphBuilder& b, const ModelConfig& config, ValueId x, int64_t layer) {
  const AudioConfig& a = *config.audio;
  const std::string prefix = audio_layer(layer, "attention");
  const int64_t size = config.hidden_size;
  const auto project = [&](const char* name, bool bias) {
    const ValueId y = projection(b, x, prefix + name, size, size, bias);
    return b.view(
        y, {batch(), positions(a.positions), heads(a.num_heads), head_dim(size / a.num_heads)});
  };
  const ValueId q = project(".wq", true);
  const ValueId k = project(".wk", false);
  const ValueId v = project(".wv", true);
  const ValueId mixed = b.sdpa_full(q, k, v);
  const ValueId joined = b.view(mixed, {batch(), positions(a.positions), features(size)});
  return projection(b, joined, prefix + ".wo", size, size, /*bias=*/true);
}

ValueId audio_mlp(GraphBuilder& b, const ModelConfig& config, ValueId x, int64_t layer) {
  const std::string prefix = audio_layer(layer, "feed_forward");
  const int64_t wide = config.audio->intermediate_size;
  const ValueId inner = projection(b, x, prefix + ".w1", config.hidden_size, wide, /*bias=*/true);
  return projection(b, activate(b, config.activation, inner), prefix + ".w2", wide,
                    config.hidden_size, /*bias=*/true);
}

}  // namespace

Result<Methods> build_audio_encoder(const ModelConfig& config, const BuildOptions&) {
  const AudioConfig& a = *config.audio;
  GraphBuilder b(static_cast<int32_t>(a.num_layers));
  const ValueId frames =
      b.input(std::string(kInputFeaturesPort), DType::kF32, {batch(), a.mel_bins, a.frames()});
  ValueId x = convolve(b, a, config.hidden_size, frames);
  x = b.add(x, b.weight_f32("audio.positions.weight",
                            {positions(a.positions), features(config.hidden_size)}));
  const auto normed = [&](int64_t layer, const char* name) {
    return layer_norm(b, x, audio_layer(layer, name), kAudioNormEps);
  };
  for (int64_t layer = 0; layer < a.num_layers; ++layer) {
    b.probe(fmt::format("encoder_hidden_states.{}", layer), x);
    b.set_layer(static_cast<int32_t>(layer));
    x = b.add(x, self_attention(b, config, normed(layer, "attention_norm"), layer));
    x = b.add(x, audio_mlp(b, config, normed(layer, "ffn_norm"), layer));
  }
  b.set_layer(static_cast<int32_t>(a.num_layers));
  x = layer_norm(b, x, "audio.norm", kAudioNormEps);
  b.probe("encoder_last_hidden_state", x);
  cross_keys_and_values(b, config, x, a.positions);
  graph::Graph graph = FERRY_TRY(b.finish());
  Methods methods;
  methods.push_back({std::string(kForwardMethod), std::move(graph)});
  return methods;
}

}  // namespace ferry::converters
