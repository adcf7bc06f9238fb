#include "converters/blocks/conformer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "core/program_interface.h"

namespace ferry::converters {
namespace {

// The epsilon of layer norms and batch norms in the reference, whatever the config says.
constexpr double kConformerEps = 1e-5;
constexpr double kRelativeBase = 10000.0;

struct ConformerRows {
  ValueId x;               // f32 [1,count,hidden_size]
  Dim count;               // the number of rows, a symbol
  ValueId number;          // the same as an Int
  ValueId distances = {};  // f32 [1,2 count,hidden_size]: sines and cosines
  int64_t heads = 1;       // whose scores are computed at a time
};

std::string layer_part(int64_t layer, const char* part) {
  return fmt::format("audio.layers.{}.{}", layer, part);
}

// -- the convolutions before the layers

// The frames of a convolution become a symbol, because their number follows by a division.
ValueId convolve(GraphBuilder& b, const ConformerConfig& c, ValueId x, int64_t in, int64_t number) {
  const std::string name = fmt::format("audio.convolutions.{}", number);
  b.windows(fmt::format("F{}", number + 1), b.graph()[x].shape[2], c.kernel, c.stride, c.padding());
  const ValueId weight =
      b.weight_f32(name + ".weight", {features(c.channels), 1, c.kernel, c.kernel});
  const ValueId bias = b.weight_f32(name + ".bias", {features(c.channels)});
  return b.conv(x, weight, bias, {.step = c.stride, .padding = c.padding(), .groups = in});
}

// A convolution over one place is a linear over channels. x is [1,channels,frames,bins].
ValueId mix_channels(GraphBuilder& b, const ConformerConfig& c, ValueId x, int64_t number) {
  const std::string name = fmt::format("audio.mixtures.{}", number);
  const ValueId weight =
      b.weight_f32(name + ".weight", {features(c.channels), features(c.channels)});
  const ValueId bias = b.weight_f32(name + ".bias", {features(c.channels)});
  const ValueId mixed = b.linear(b.permute(x, {0, 2, 3, 1}), weight);
  return b.permute(b.relu(b.add(mixed, bias)), {0, 3, 1, 2});
}

ConformerRows subsample(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options) {
  const AudioConfig& a = *config.audio;
  const ConformerConfig& c = *a.conformer;
  const int32_t frames = b.symbol("F", options.sound_frames, ValueId{});
  const ValueId given = b.input(std::string(kInputFeaturesPort), DType::kF32,
                                {batch(), positions(Dim::of(frames)), features(a.mel_bins)});
  b.bind_symbol(frames, b.sym_size(given, 1));
  ValueId x = b.relu(convolve(b, c, b.unsqueeze(given, 1), 1, 0));
  for (int64_t i = 1; i < c.convolutions; ++i) {
    x = mix_channels(b, c, convolve(b, c, x, c.channels, i), i);
  }
  const Dim count = b.graph()[x].shape[2];
  const ValueId number = b.sym_size(x, 2);
  if (!count.is_static()) b.bind_symbol(count.symbol, number);
  const int64_t width = c.channels * c.bins(a.mel_bins);
  x = b.view(b.permute(x, {0, 2, 1, 3}), {batch(), positions(count), features(width)});
  x = projection(b, x, "audio.subsampling", width, config.hidden_size, /*bias=*/true);
  if (c.scale_input) x = b.mul(x, std::sqrt(static_cast<double>(config.hidden_size)));
  return {x, positions(count), number};
}

// -- attention by relative positions

graph::Literal numbers_literal(std::string key, std::vector<float> numbers) {
  const auto bytes = static_cast<uint64_t>(numbers.size() * sizeof(float));
  return {std::move(key), bytes,
          [numbers = std::move(numbers)](uint64_t offset, std::span<std::byte> out) {
            const auto all = std::as_bytes(std::span(numbers));
            std::ranges::copy(all.subspan(offset, out.size()), out.begin());
          }};
}

// The frequencies, each twice and negated, as f32 rounds them.
graph::Literal negated_frequencies(int64_t width) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < width; ++i) {
    const float power = static_cast<float>(i / 2 * 2) / static_cast<float>(width);
    numbers.push_back(-1.0F / static_cast<float>(std::pow(kRelativeBase, double{power})));
  }
  return numbers_literal(fmt::format("relative frequencies {}", width), std::move(numbers));
}

// 1 for every second element, 0 for the others.
graph::Literal every_second(int64_t width) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < width; ++i) numbers.push_back(i % 2 == 0 ? 1.0F : 0.0F);
  return numbers_literal(fmt::format("every second of {}", width), std::move(numbers));
}

// Sines and cosines of the distances from `count` down to 1 - count, in turn. No row has the
// distance `count`: with it a shift needs no padding.
ValueId relative_positions(GraphBuilder& b, const ModelConfig& config, const ConformerRows& rows) {
  const int64_t width = config.hidden_size;
  Dim twice = rows.count;
  twice.scale *= 2;
  twice.base *= 2;
  const ValueId start = b.int_sub(0, rows.number);
  const ValueId opposite = b.to(b.arange(start, rows.number, positions(twice)), DType::kF32);
  const auto row = [&](graph::Literal literal) {
    return b.literal(DType::kF32, {1, features(width)}, std::move(literal));
  };
  const ValueId frequencies = row(negated_frequencies(width));
  const ValueId angles = b.mul(b.unsqueeze(opposite, 1), frequencies);
  const ValueId is_sine = b.gt(row(every_second(width)), 0.5);
  const ValueId sines = b.sin(angles), cosines = b.cos(angles);
  return b.unsqueeze(b.where(is_sine, sines, cosines), 0);
}

// Row i of scores [heads,n,2n] by distance begins with that of distance n. Returns [heads,n,n]: the
// score of row i and key j has the distance i - j.
ValueId shift(GraphBuilder& b, ValueId scores, const ConformerRows& rows) {
  const Dim twice = b.graph()[scores].shape[2];
  Dim less_one = twice;
  less_one.base -= 1;
  const ValueId turned = b.view(scores, {heads(rows.heads), twice, rows.count});
  const ValueId end = b.int_add(rows.number, rows.number);
  const ValueId rest = b.slice(turned, 1, 1, end, less_one);
  const ValueId shifted = b.view(rest, {heads(rows.heads), rows.count, less_one});
  return b.slice(shifted, 2, 0, rows.number, rows.count);
}

// Scores take memory with the square of the rows. Returns of how many heads they take no more than
// what the convolutions hold at once, which is in proportion to the frames: a divisor of all heads.
int64_t heads_at_a_time(const AudioConfig& a, int64_t frames) {
  constexpr int64_t kBytes = sizeof(float);
  const ConformerConfig& c = *a.conformer;
  const int64_t rows = rows_of_frames(c, frames);
  // Scores by distance and the same without their first row, and the outputs of two steps.
  const int64_t scores = 2 * rows * 2 * rows * kBytes;
  const int64_t held = 2 * c.channels * c.after_one(frames) * c.after_one(a.mel_bins) * kBytes;
  int64_t count = std::clamp<int64_t>(held / std::max<int64_t>(scores, 1), 1, a.num_heads);
  while (a.num_heads % count != 0) --count;
  return count;
}

class RelativeAttention {
 public:
  RelativeAttention(GraphBuilder& b, const ModelConfig& config, const ConformerRows& rows,
                    int64_t layer)
      : b_(b),
        config_(config),
        a_(*config.audio),
        rows_(rows),
        prefix_(layer_part(layer, "attention")) {}

  ValueId build(ValueId x) {
    const ValueId q = projected(x, ".wq", rows_.count);
    const ValueId content = query(q, ".content_bias");
    const ValueId position = query(q, ".position_bias");
    const ValueId keys = columns(projected(x, ".wk", rows_.count));
    const Dim twice = b_.graph()[rows_.distances].shape[1];
    const ValueId distances = columns(
        split_heads(projection(b_, rows_.distances, prefix_ + ".relative_wk", config_.hidden_size,
                               a_.num_heads * a_.head_dim, /*bias=*/false),
                    twice));
    const ValueId values = by_head(projected(x, ".wv", rows_.count));
    const auto part = [&](ValueId of_all, int64_t first) {
      if (rows_.heads == a_.num_heads) return of_all;
      return b_.slice(of_all, 0, first, first + rows_.heads);
    };
    std::vector<ValueId> parts;
    for (int64_t first = 0; first < a_.num_heads; first += rows_.heads) {
      const ValueId own = part(position, first);
      const ValueId far = part(distances, first);
      const ValueId by_distance = shift(b_, b_.bmm(own, far), rows_);
      const ValueId queries = part(content, first);
      const ValueId others = part(keys, first);
      const ValueId weights = b_.softmax_last(b_.add(b_.bmm(queries, others), by_distance));
      parts.push_back(b_.bmm(weights, part(values, first)));
    }
    const ValueId mixed = parts.size() == 1 ? parts.front() : b_.cat(parts, 0);
    return joined(mixed);
  }

 private:
  ValueId split_heads(ValueId x, Dim count) {
    return b_.view(x, {batch(), count, heads(a_.num_heads), head_dim(a_.head_dim)});
  }
  ValueId projected(ValueId x, const char* name, Dim count) {
    return split_heads(projection(b_, x, prefix_ + name, config_.hidden_size,
                                  a_.num_heads * a_.head_dim, a_.query_bias),
                       count);
  }
  // [1,n,heads,head_dim] -> [heads,n,head_dim]
  ValueId by_head(ValueId x) { return b_.select(b_.permute(x, {0, 2, 1, 3}), 0, 0); }
  // [1,n,heads,head_dim] -> [heads,head_dim,n]
  ValueId columns(ValueId x) { return b_.select(b_.permute(x, {0, 2, 3, 1}), 0, 0); }
  // Queries with a bias, over the root of the size of a head.
  ValueId query(ValueId q, const char* name) {
    const ValueId bias =
        b_.weight_f32(prefix_ + name, {heads(a_.num_heads), head_dim(a_.head_dim)});
    return by_head(b_.mul(b_.add(q, bias), 1.0 / std::sqrt(static_cast<double>(a_.head_dim))));
  }
  ValueId joined(ValueId mixed) {
    const int64_t size = a_.num_heads * a_.head_dim;
    const ValueId rows =
        b_.view(b_.permute(mixed, {1, 0, 2}), {batch(), rows_.count, features(size)});
    return projection(b_, rows, prefix_ + ".wo", size, config_.hidden_size, a_.output_bias);
  }

  GraphBuilder& b_;
  const ModelConfig& config_;
  const AudioConfig& a_;
  const ConformerRows& rows_;
  const std::string prefix_;
};

// -- the other blocks of a layer

ValueId half_mlp(GraphBuilder& b, const ModelConfig& config, ValueId x, const std::string& prefix) {
  const AudioConfig& a = *config.audio;
  const int64_t size = config.hidden_size, wide = a.intermediate_size;
  const bool bias = a.conformer->mlp_bias;
  const ValueId inner =
      activate(b, a.activation, projection(b, x, prefix + ".w1", size, wide, bias));
  return b.mul(projection(b, inner, prefix + ".w2", wide, size, bias), 0.5);
}

// The convolution over time between two linears, of which the first has gates.
ValueId convolution(GraphBuilder& b, const ModelConfig& config, ValueId x,
                    const std::string& prefix) {
  const ConformerConfig& c = *config.audio->conformer;
  const int64_t size = config.hidden_size;
  const ValueId wide = projection(b, x, prefix + ".w1", size, 2 * size, c.convolution_bias);
  const ValueId gate = b.sigmoid(b.slice(wide, 2, size, 2 * size));
  const ValueId gated = b.mul(b.slice(wide, 2, 0, size), gate);
  const ValueId filters =
      b.weight_f32(prefix + ".filters.weight", {features(size), 1, c.time_kernel});
  const ValueId bias =
      c.convolution_bias ? b.weight_f32(prefix + ".filters.bias", {features(size)}) : ValueId{};
  const ValueId mixed = b.conv(b.permute(gated, {0, 2, 1}), filters, bias,
                               {.padding = (c.time_kernel - 1) / 2, .groups = size});
  const ValueId normed = batch_norm(b, b.permute(mixed, {0, 2, 1}), prefix + ".batch_norm", size);
  return projection(b, activate(b, config.audio->activation, normed), prefix + ".w2", size, size,
                    c.convolution_bias);
}

ValueId conformer_layer(GraphBuilder& b, const ModelConfig& config, const ConformerRows& rows,
                        ValueId x, int64_t number) {
  const auto normed = [&](const char* part) {
    return norm(b, NormKind::kLayer, x, layer_part(number, part), kConformerEps);
  };
  x = b.add(x, half_mlp(b, config, normed("first_norm"), layer_part(number, "first_mlp")));
  x = b.add(x, RelativeAttention(b, config, rows, number).build(normed("attention_norm")));
  x = b.add(x,
            convolution(b, config, normed("convolution_norm"), layer_part(number, "convolution")));
  x = b.add(x, half_mlp(b, config, normed("second_norm"), layer_part(number, "second_mlp")));
  return normed("norm");
}

}  // namespace

ValueId batch_norm(GraphBuilder& b, ValueId x, const std::string& name, int64_t size) {
  const auto vector = [&](const char* part) { return b.weight_f32(name + part, {features(size)}); };
  const ValueId epsilon = b.scalar(static_cast<float>(kConformerEps));
  const ValueId inverse = b.rsqrt(b.add(vector(".variance"), epsilon));
  const ValueId scale = b.mul(inverse, vector(".weight"));
  const ValueId mean = b.mul(vector(".mean"), scale);
  const ValueId offset = b.sub(vector(".bias"), mean);
  return b.add(b.mul(x, scale), offset);
}

Result<Methods> build_conformer(const ModelConfig& config, const BuildOptions& options) {
  const int64_t layers = config.audio->num_layers;
  GraphBuilder b(static_cast<int32_t>(layers));
  ConformerRows rows = subsample(b, config, options);
  rows.distances = relative_positions(b, config, rows);
  rows.heads = heads_at_a_time(*config.audio, options.sound_frames);
  ValueId x = rows.x;
  for (int64_t i = 0; i < layers; ++i) {
    b.probe(fmt::format("encoder_hidden_states.{}", i), x);
    b.set_layer(static_cast<int32_t>(i));
    x = conformer_layer(b, config, rows, x, i);
  }
  b.set_layer(static_cast<int32_t>(layers));
  b.probe("encoder_last_hidden_state", x);
  const ValueId logits =
      projection(b, x, "ctc_head", config.hidden_size, config.vocab_size, /*bias=*/true);
  b.output(logits, std::string(kTokenLogitsPort));
  graph::Graph graph = FERRY_TRY(b.finish());
  Methods methods;
  methods.push_back({std::string(kForwardMethod), std::move(graph)});
  return methods;
}

int64_t rows_of_frames(const ConformerConfig& config, int64_t frames) {
  for (int64_t i = 0; i < config.convolutions; ++i) frames = config.after_one(frames);
  return frames;
}

}  // namespace ferry::converters
