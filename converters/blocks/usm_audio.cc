#include "converters/blocks/usm_audio.h"

#include <fmt/format.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "converters/blocks/placed_rows.h"
#include "converters/blocks/row_blocks.h"
#include "converters/blocks/token_ranges.h"
#include "converters/blocks/usm_front.h"
#include "core/program_interface.h"

namespace ferry::converters {
namespace {

// The epsilon of the norms around MLPs and attention, whatever the config says.
constexpr double kLayerEps = 1e-6;
constexpr double kLongestScale = 10000.0;
constexpr float kHidden = -1e9F;

// Returns the distance that column 0 of the part by distance stands for. Those behind it are one
// less each, to that of column last_column().
int64_t farthest(const UsmAudioConfig& g) { return g.gemma3n ? g.past : g.context() / 2; }
int64_t last_column(const UsmAudioConfig& g) {
  return g.gemma3n ? g.past + g.future : g.context() / 2;
}

// Returns the table of sines and cosines for the rows that one row may attend to, f32
// [context + 1,width]: row c is that of the distance farthest() - c, and rows behind last_column()
// are zeros. Numbers are rounded to f32 where the reference rounds.
std::vector<float> position_table(const UsmAudioConfig& g, int64_t width) {
  const int64_t half = width / 2;
  const auto step = static_cast<float>(std::log(kLongestScale) /
                                       static_cast<double>(std::max<int64_t>(half - 1, 1)));
  std::vector<float> table(static_cast<size_t>((g.context() + 1) * width), 0.0F);
  for (int64_t c = 0; c <= last_column(g); ++c) {
    for (int64_t i = 0; i < half; ++i) {
      const float power = static_cast<float>(i) * -step;
      const auto scale = static_cast<float>(std::exp(static_cast<double>(power)));
      const float angle = static_cast<float>(farthest(g) - c) * scale;
      const auto at = static_cast<size_t>(c * width + i);
      table[at] = static_cast<float>(std::sin(static_cast<double>(angle)));
      table[at + static_cast<size_t>(half)] =
          static_cast<float>(std::cos(static_cast<double>(angle)));
    }
  }
  return table;
}

// Returns what is added to the scores of a chunk, [chunk,context]: 0 where a row may attend to the
// other by their distance. Row r of a chunk stands at column `past` + r.
std::vector<float> band(const UsmAudioConfig& g) {
  const int64_t more = g.gemma3n ? 1 : 0;
  std::vector<float> values;
  for (int64_t r = 0; r < g.chunk; ++r) {
    for (int64_t j = 0; j < g.context(); ++j) {
      const int64_t distance = r + g.past - j;
      const bool seen = distance >= 0 ? distance < g.past + more : -distance < g.future + more;
      values.push_back(seen ? 0.0F : kHidden);
    }
  }
  return values;
}

class UsmAudio {
 public:
  UsmAudio(GraphBuilder& b, const ModelConfig& config)
      : b_(b), a_(*config.audio), config_(config), g_(*a_.usm), width_(a_.to_rows->width) {}

  // Returns rows of the text decoder, f32 [1,N,hidden_size], of frames f32 [1,F,mel_bins].
  ValueId build(ValueId frames) {
    const UsmRows rows = usm_front(b_, config_, frames);
    ValueId x = rows.x;
    rows_ = rows.count;
    number_ = rows.number;
    cut_into_chunks();
    for (int64_t layer = 0; layer < a_.num_layers; ++layer) {
      b_.probe(fmt::format("encoder_hidden_states.{}", layer), x);
      b_.set_layer(static_cast<int32_t>(layer));
      x = layer_of(x, layer);
    }
    b_.set_layer(static_cast<int32_t>(a_.num_layers));
    return g_.gemma3n ? padded_rows(x) : rows_behind_linear(x);
  }

 private:
  ValueId rows_behind_linear(ValueId x) {
    x = projection(b_, x, "audio.output", width_, g_.output_size, /*bias=*/true);
    b_.probe("encoder_last_hidden_state", x);
    return projection(b_, bare_rms_norm(b_, x, g_.norm_eps), "audio.connector.w1", g_.output_size,
                      config_.hidden_size, /*bias=*/false);
  }
  // A sound has a number of rows whatever its length. Those behind its own are the embedding of the
  // last token id.
  ValueId padded_rows(ValueId x) {
    const int64_t count = g_.gemma3n->rows;
    const TokenRangeConfig& range = config_.token_ranges.back();
    x = every_row(b_, x, g_.gemma3n->reduction, width_);
    b_.probe("encoder_last_hidden_state", x);
    const ValueId own = encoded_rows(b_, config_, range, x);
    const ValueId padding = padding_row(b_, config_, range, range.end - 1);
    const ValueId behind =
        b_.expand(padding, {batch(), positions(count), features(config_.hidden_size)});
    return b_.slice(b_.cat({own, behind}, 1), 1, 0, count);
  }

  static std::string part(int64_t layer, const char* name) {
    return fmt::format("audio.layers.{}.{}", layer, name);
  }
  ValueId normed(ValueId x, int64_t layer, const char* name, double eps = kLayerEps) {
    return rms_norm(b_, x, part(layer, name) + ".weight", eps);
  }
  // Values beyond the greatest one would be those of a training that went wrong.
  ValueId held(ValueId x) {
    const double most = std::min(g_.greatest, static_cast<double>(FLT_MAX));
    return b_.clamp(x, -most, most);
  }
  // Applies a linear layer, whose input and output may be held between stored limits.
  ValueId linear(ValueId x, const std::string& name, int64_t in, int64_t out) {
    const auto limited = [&](ValueId value, const char* least, const char* most) {
      if (!g_.clips) return value;
      const ValueId low = b_.weight_f32(name + least, {});
      return b_.clamp(value, low, b_.weight_f32(name + most, {}));
    };
    const ValueId y =
        projection(b_, limited(x, ".input_min", ".input_max"), name, in, out, /*bias=*/false);
    return limited(y, ".output_min", ".output_max");
  }

  // -- attention

  // Prepares what cuts rows into chunks, and the mask of all layers.
  void cut_into_chunks() {
    const RowBlocks cut = cut_rows(b_, rows_, number_, g_.chunk, "C", "ones of a chunk");
    blocks_ = cut;
    chunks_ = cut.count;
    whole_ = cut.whole();
    const ValueId last = b_.slice(cut.all, 0, b_.int_sub(number_, 1), number_, 1);
    mask_ = mask(b_.select(cut.firsts, 1, 0), last);
    const ValueId table = b_.literal(
        DType::kF32, {positions(g_.context() + 1), features(width_)},
        graph::literal_of(
            fmt::format("positions of {} rows of {} from {}", g_.context(), width_, farthest(g_)),
            position_table(g_, width_)));
    table_ = b_.unsqueeze(table, 0);
  }

  // Returns what is added to scores, f32 [chunks,chunk,context]. `firsts` f32 [1,chunks] are the
  // numbers of the first rows of chunks, `last` f32 [1] is that of the last row of all.
  ValueId mask(ValueId firsts, ValueId last) {
    std::vector<float> steps;
    for (int64_t j = 0; j < g_.context(); ++j) steps.push_back(static_cast<float>(j - g_.past));
    const ValueId columns =
        b_.literal(DType::kF32, {1, g_.context()}, graph::literal_of("columns of a chunk", steps));
    const ValueId others = b_.add(b_.view(firsts, {chunks_, 1}), columns);
    const ValueId begun = b_.ge(others, 0);
    const ValueId inside = b_.logical_and(begun, b_.lt(b_.sub(others, last), 1));
    const ValueId shown = b_.scalar(0.0F), hidden = b_.scalar(kHidden);
    const ValueId there = b_.where(inside, shown, hidden);
    const ValueId near = b_.literal(DType::kF32, {g_.chunk, g_.context()},
                                    graph::literal_of("rows that are near", band(g_)));
    return b_.add(b_.view(there, {chunks_, 1, g_.context()}), near);
  }

  // Queries f32 [heads,whole,head_dim].
  ValueId queries(ValueId x, int64_t layer) {
    const std::string prefix = part(layer, "attention");
    const ValueId scale =
        softplus(b_, b_.weight_f32(prefix + ".dim_scale", {head_dim(a_.head_dim)}));
    const double factor = 1.0 / (std::sqrt(static_cast<double>(a_.head_dim)) * std::numbers::ln2);
    const ValueId q = linear(x, prefix + ".wq", width_, width_);
    const ValueId by_head =
        b_.view(q, {batch(), rows_, heads(a_.num_heads), head_dim(a_.head_dim)});
    const ValueId scaled =
        b_.view(b_.mul(b_.mul(by_head, factor), scale), {batch(), rows_, features(width_)});
    const ValueId whole = fill_blocks(b_, blocks_, scaled, width_);
    const ValueId split =
        b_.view(whole, {batch(), whole_, heads(a_.num_heads), head_dim(a_.head_dim)});
    return b_.view(b_.permute(split, {0, 2, 1, 3}),
                   {heads(a_.num_heads), whole_, head_dim(a_.head_dim)});
  }
  // The rows that each chunk may attend to: f32 [chunks,context,heads,head_dim].
  ValueId contexts(ValueId x) {
    const int64_t pieces = (g_.context() + g_.chunk - 1) / g_.chunk;
    std::vector<ValueId> padded;
    if (g_.past > 0) padded.push_back(zero_rows(b_, g_.past, width_));
    padded.push_back(x);
    const int64_t behind = pieces * g_.chunk - 1 - g_.past;
    if (behind > 0) padded.push_back(zero_rows(b_, behind, width_));
    const ValueId all = b_.cat(padded, 1);
    std::vector<ValueId> parts;
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const int64_t first = piece * g_.chunk;
      const ValueId end = b_.int_add(blocks_.whole_number, first);
      const ValueId rows = b_.slice(all, 1, first, end, whole_);
      parts.push_back(b_.view(rows, {chunks_, g_.chunk, features(width_)}));
    }
    const ValueId joined = parts.size() == 1 ? parts.front() : b_.cat(parts, 1);
    const ValueId kept =
        pieces * g_.chunk == g_.context() ? joined : b_.slice(joined, 1, 0, g_.context());
    return b_.view(kept, {chunks_, g_.context(), heads(a_.num_heads), head_dim(a_.head_dim)});
  }
  // Scores by the distance of the rows, f32 [heads chunks,chunk,context]. Row r of a chunk begins r
  // columns later, which a row that is longer by one column makes.
  ValueId by_distance(ValueId q, int64_t layer) {
    const int64_t context = g_.context();
    const ValueId near =
        projection(b_, table_, part(layer, "attention.relative_wk"), width_, width_, false);
    const ValueId split = b_.view(
        near, {batch(), positions(context + 1), heads(a_.num_heads), head_dim(a_.head_dim)});
    const ValueId columns = b_.view(b_.permute(split, {0, 2, 3, 1}),
                                    {heads(a_.num_heads), head_dim(a_.head_dim), context + 1});
    const ValueId scores = b_.bmm(q, columns);
    const Dim of_heads = blocks_.times(a_.num_heads);
    const ValueId turned = b_.view(scores, {of_heads, g_.chunk * (context + 1)});
    return b_.view(b_.slice(turned, 1, 0, g_.chunk * context), {of_heads, g_.chunk, context});
  }
  ValueId attend(ValueId x, int64_t layer) {
    const std::string prefix = part(layer, "attention");
    const int64_t count = a_.num_heads, dim = a_.head_dim, context = g_.context();
    const Dim of_heads = blocks_.times(count);
    const ValueId q = queries(x, layer);
    ValueId k = linear(x, prefix + ".wk", width_, width_);
    if (!g_.gemma3n) k = b_.mul(k, std::log(1.0 + std::numbers::e) / std::numbers::ln2);
    const ValueId keys = b_.view(b_.permute(contexts(k), {2, 0, 3, 1}), {of_heads, dim, context});
    const ValueId v = linear(x, prefix + ".wv", width_, width_);
    const ValueId values = b_.view(b_.permute(contexts(v), {2, 0, 1, 3}), {of_heads, context, dim});
    const ValueId content = b_.bmm(b_.view(q, {of_heads, g_.chunk, dim}), keys);
    const ValueId capped = softcap(b_, b_.add(content, by_distance(q, layer)), g_.cap);
    const ValueId scores = b_.view(capped, {count, chunks_, g_.chunk, context});
    const ValueId weights = b_.softmax_last(b_.add(scores, mask_));
    const ValueId mixed = b_.bmm(b_.view(weights, {of_heads, g_.chunk, context}), values);
    const ValueId by_head = b_.view(mixed, {heads(count), whole_, head_dim(dim)});
    const ValueId joined =
        b_.view(b_.permute(by_head, {1, 0, 2}), {batch(), positions(whole_), features(width_)});
    const ValueId kept = b_.slice(joined, 1, 0, number_, rows_);
    return linear(kept, prefix + ".wo", width_, width_);
  }

  // -- the other blocks of a layer

  ValueId half_mlp(ValueId x, int64_t layer, const char* mlp, const char* before,
                   const char* behind) {
    const std::string prefix = part(layer, mlp);
    const int64_t wide = a_.intermediate_size;
    const ValueId in = normed(held(x), layer, before);
    const ValueId inner = activate(b_, a_.activation, linear(in, prefix + ".w1", width_, wide));
    const ValueId out = normed(held(linear(inner, prefix + ".w2", wide, width_)), layer, behind);
    return b_.add(b_.mul(out, g_.residual), x);
  }
  ValueId convolution(ValueId x, int64_t layer) {
    const std::string prefix = part(layer, "convolution");
    const ValueId in = normed(x, layer, "convolution_norm", g_.norm_eps);
    const ValueId wide = linear(in, prefix + ".w1", width_, 2 * width_);
    const ValueId gate = b_.sigmoid(b_.slice(wide, 2, width_, 2 * width_));
    const ValueId gated = b_.mul(b_.slice(wide, 2, 0, width_), gate);
    const ValueId padded =
        g_.time_kernel > 1 ? b_.cat({zero_rows(b_, g_.time_kernel - 1, width_), gated}, 1) : gated;
    const ValueId filters =
        b_.weight_f32(prefix + ".filters.weight", {features(width_), 1, g_.time_kernel});
    const ValueId mixed = b_.depthwise_conv1d(b_.permute(padded, {0, 2, 1}), filters);
    const ValueId states =
        normed(held(b_.permute(mixed, {0, 2, 1})), layer, "convolution.norm", g_.norm_eps);
    const ValueId out = linear(activate(b_, a_.activation, states), prefix + ".w2", width_, width_);
    return b_.add(out, x);
  }
  ValueId layer_of(ValueId x, int64_t layer) {
    x = half_mlp(x, layer, "first_mlp", "first_norm", "post_first_norm");
    const ValueId attended = attend(normed(held(x), layer, "attention_norm"), layer);
    x = b_.add(normed(held(attended), layer, "post_attention_norm"), x);
    x = convolution(x, layer);
    x = half_mlp(x, layer, "second_mlp", "second_norm", "post_second_norm");
    return normed(held(x), layer, "norm");
  }

  GraphBuilder& b_;
  const AudioConfig& a_;
  const ModelConfig& config_;
  const UsmAudioConfig& g_;
  const int64_t width_;
  Dim rows_, chunks_, whole_;  // whole_: the rows of all chunks
  ValueId number_;
  RowBlocks blocks_;
  ValueId mask_, table_;
};

}  // namespace

Result<Methods> build_usm_audio(const ModelConfig& config, const BuildOptions& options) {
  GraphBuilder b(static_cast<int32_t>(config.audio->num_layers));
  const int32_t frames = b.symbol("F", options.sound_frames, ValueId{});
  const ValueId given =
      b.input(std::string(kInputFeaturesPort), DType::kF32,
              {batch(), positions(Dim::of(frames)), features(config.audio->mel_bins)});
  b.bind_symbol(frames, b.sym_size(given, 1));
  UsmAudio encoder(b, config);
  const ValueId rows = encoder.build(given);
  b.output(placed_sound(b, config, options, rows), std::string(kAudioFeaturesPort));
  Methods methods;
  graph::Graph graph = FERRY_TRY(b.finish());
  methods.push_back({std::string(kForwardMethod), std::move(graph)});
  return methods;
}

}  // namespace ferry::converters
