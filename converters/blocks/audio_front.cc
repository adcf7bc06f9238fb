#include "converters/blocks/audio_front.h"

#include <utility>

#include "core/program_interface.h"

namespace ferry::converters {
namespace {

// The convolutions over samples. Source: transformers, models/moonshine/modeling_moonshine.py.
struct Convolution {
  const char* name;
  int64_t kernel, step;
};
constexpr Convolution kConvolutions[] = {
    {"audio.conv1", 127, 64}, {"audio.conv2", 7, 3}, {"audio.conv3", 3, 2}};
constexpr double kGroupNormEps = 1e-5;

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
ValueId convolve_frames(GraphBuilder& b, const AudioConfig& a, int64_t width, ValueId frames) {
  const ValueId rows =
      b.view(b.permute(frames, {0, 2, 1}), {batch(), positions(a.frames()), features(a.mel_bins)});
  ValueId x = projection(b, windows(b, rows, a.frames(), a.mel_bins), "audio.conv1", 3 * a.mel_bins,
                         width, /*bias=*/true);
  x = activate(b, Activation::kGelu, x);
  x = projection(b, every_second_window(b, x, a.frames(), width), "audio.conv2", 3 * width, width,
                 /*bias=*/true);
  return activate(b, Activation::kGelu, x);
}

AudioRows rows_of_frames(GraphBuilder& b, const ModelConfig& config) {
  const AudioConfig& a = *config.audio;
  const ValueId frames =
      b.input(std::string(kInputFeaturesPort), DType::kF32, {batch(), a.mel_bins, a.frames()});
  const ValueId x = convolve_frames(b, a, config.audio_width(), frames);
  const ValueId places = b.weight_f32("audio.positions.weight",
                                      {positions(a.positions), features(config.audio_width())});
  return {b.add(x, places), positions(a.positions)};
}

// The number of windows of each convolution is a symbol, because it follows from the number of
// samples by a division. The last one is the number of rows.
ValueId convolve_samples(GraphBuilder& b, const Convolution& c, ValueId x, int64_t in, int64_t out,
                         bool bias) {
  const Dim length = b.graph()[x].shape[2];
  b.windows(c.name, length, c.kernel, c.step);
  const std::string name = c.name;
  const ValueId weight = b.weight_f32(name + ".weight", {features(out), in, c.kernel});
  const ValueId added = bias ? b.weight_f32(name + ".bias", {features(out)}) : ValueId{};
  return b.conv(x, weight, added, {.step = c.step});
}

// Returns the mean of all values of x [1,C,n] as [1,1,1]: that of the means of the channels.
ValueId mean_of_all(GraphBuilder& b, ValueId x, int64_t channels) {
  return b.mean_last(b.view(b.mean_last(x), {batch(), 1, channels}));
}

// The group norm of one group: all values have one mean and one variance.
ValueId group_norm(GraphBuilder& b, ValueId x, int64_t channels) {
  const auto parameter = [&](const char* name) {
    return b.view(b.weight_f32(name, {features(channels)}), {features(channels), 1});
  };
  const ValueId centered = b.sub(x, mean_of_all(b, x, channels));
  const ValueId variance = mean_of_all(b, b.mul(centered, centered), channels);
  const ValueId scale = b.rsqrt(b.add(variance, b.scalar(static_cast<float>(kGroupNormEps))));
  const ValueId weight = parameter("audio.group_norm.weight");
  const ValueId bias = parameter("audio.group_norm.bias");
  return b.add(b.mul(b.mul(centered, scale), weight), bias);
}

// The table of RoPE for the rows is that of an encoder whose tokens are the rows.
RopeTable rope_of_rows(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options,
                       int32_t rows) {
  BuildOptions whole = options;
  whole.style = ProgramStyle::kEncoder;
  whole.context_length = b.graph().symbols[static_cast<size_t>(rows)].max;
  return make_encoder_context(b, config, whole, {.tokens = rows}).full.rope;
}

AudioRows rows_of_sound(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options) {
  const int64_t width = config.hidden_size;
  const int32_t samples = b.symbol("S", options.sound_samples, ValueId{});
  const ValueId values =
      b.input(std::string(kInputValuesPort), DType::kF32, {batch(), positions(Dim::of(samples))});
  ValueId x = convolve_samples(b, kConvolutions[0], b.unsqueeze(values, 1), 1, width, false);
  x = group_norm(b, b.tanh(x), width);
  x = activate(b, Activation::kGelu,
               convolve_samples(b, kConvolutions[1], x, width, 2 * width, true));
  x = activate(b, Activation::kGelu,
               convolve_samples(b, kConvolutions[2], x, 2 * width, width, true));
  const int32_t rows = b.graph()[x].shape[2].symbol;
  b.bind_symbol(rows, b.sym_size(x, 2));
  const Dim count = positions(Dim::of(rows));
  x = b.view(b.permute(x, {0, 2, 1}), {batch(), count, features(width)});
  return {x, count, rope_of_rows(b, config, options, rows)};
}

}  // namespace

AudioRows audio_front(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options) {
  return config.audio->takes_samples() ? rows_of_sound(b, config, options)
                                       : rows_of_frames(b, config);
}

int64_t rows_of_samples(int64_t samples) {
  for (const Convolution& c : kConvolutions) {
    if (samples < c.kernel) return 0;
    samples = (samples - c.kernel) / c.step + 1;
  }
  return samples;
}

}  // namespace ferry::converters
