#include "converters/blocks/granite_audio.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "converters/blocks/conformer.h"
#include "converters/blocks/placed_rows.h"
#include "converters/blocks/row_blocks.h"
#include "converters/blocks/window_projector.h"
#include "core/program_interface.h"

namespace ferry::converters {
namespace {

// The epsilon of the layer norms in the reference, whatever the config says.
constexpr double kGraniteNormEps = 1e-5;
// Is added to the score of a row behind the sound. A score that is lower by so much has no part in
// a softmax.
constexpr float kBehindSound = -1e9F;

class GraniteAudio {
 public:
  GraniteAudio(GraphBuilder& b, const ModelConfig& config)
      : b_(b), config_(config), a_(*config.audio), g_(*a_.granite), width_(a_.to_rows->width) {}

  // Returns rows of the text decoder, f32 [1,N,hidden_size], of rows of frames f32 [1,F,mel_bins].
  ValueId build(ValueId frames) {
    rows_ = b_.graph()[frames].shape[1];
    number_ = b_.sym_size(frames, 1);
    b_.bind_symbol(rows_.symbol, number_);
    blocks_ = cut_rows(b_, rows_, number_, g_.block, "C", fmt::format("ones of {}", g_.block));
    mask_ = mask();
    nearest_ = distances();
    ValueId x = projection(b_, frames, "audio.input", a_.mel_bins, width_, /*bias=*/true);
    std::vector<ValueId> kept;
    keep(kept, x, 0);
    for (int64_t layer = 0; layer < a_.num_layers; ++layer) {
      b_.probe(fmt::format("encoder_hidden_states.{}", layer), x);
      b_.set_layer(static_cast<int32_t>(layer));
      x = layer_of(x, layer);
      if (layer + 1 == a_.num_layers / 2) x = with_labels(x);
      keep(kept, x, layer + 1);
    }
    b_.set_layer(static_cast<int32_t>(a_.num_layers));
    kept.push_back(x);
    const ValueId states = kept.size() == 1 ? x : b_.cat(kept, 2);
    b_.probe("encoder_last_hidden_state", states);
    const RowBlocks cut = windows();
    return project_windows(b_, g_.projector, cut, states, std::ssize(kept) * width_,
                           config_.hidden_size);
  }

 private:
  static std::string part(int64_t layer, const char* name) {
    return fmt::format("audio.layers.{}.{}", layer, name);
  }
  void keep(std::vector<ValueId>& kept, ValueId x, int64_t state) const {
    if (std::ranges::count(g_.joined, state) > 0) kept.push_back(x);
  }
  // Blocks of one size have one symbol.
  RowBlocks windows() {
    const int64_t size = g_.projector.window;
    if (size == g_.block) return blocks_;
    return cut_rows(b_, rows_, number_, size, "W", fmt::format("ones of {}", size));
  }
  // Adds what the probabilities of labels say to the states.
  ValueId with_labels(ValueId x) {
    const ValueId labels = projection(b_, x, "audio.labels", width_, g_.labels, /*bias=*/true);
    const ValueId likely = b_.softmax_last(labels);
    return b_.add(x, projection(b_, likely, "audio.from_labels", g_.labels, width_, /*bias=*/true));
  }

  // -- attention

  // Returns what is added to scores, f32 [blocks,1,block]: rows behind the sound are not seen.
  ValueId mask() {
    std::vector<float> steps;
    for (int64_t i = 0; i < g_.block; ++i) steps.push_back(static_cast<float>(i));
    const ValueId columns =
        b_.literal(DType::kF32, {1, g_.block},
                   graph::literal_of(fmt::format("columns of {}", g_.block), steps));
    const ValueId firsts = b_.select(blocks_.firsts, 1, 0);
    const ValueId others = b_.add(b_.view(firsts, {blocks_.count, 1}), columns);
    const ValueId before_last = b_.int_sub(number_, 1);
    const ValueId last = b_.slice(blocks_.all, 0, before_last, number_, 1);
    const ValueId inside = b_.lt(b_.sub(others, last), 1);
    const ValueId shown = b_.scalar(0.0F), hidden = b_.scalar(kBehindSound);
    return b_.view(b_.where(inside, shown, hidden), {blocks_.count, 1, g_.block});
  }
  // The rows of a table of distances for those from block - 1 down to -block, i64 [1,2 block].
  ValueId distances() {
    std::vector<int64_t> ids;
    for (int64_t d = g_.block - 1; d >= -g_.block; --d) ids.push_back(g_.farthest + d);
    return b_.literal(
        DType::kI64, {batch(), positions(2 * g_.block)},
        graph::literal_of(fmt::format("distances {} of {}", g_.block, g_.farthest), ids));
  }
  // Scores by the distance of the rows, f32 [heads blocks,block,block], of queries f32
  // [1,heads whole,head_dim]. Column j of row r has the distance r - j. In a row of all distances,
  // it is the column block - 1 + j - r; rows that are longer by one column move it.
  ValueId by_distance(ValueId q, int64_t layer) {
    const int64_t all = 2 * g_.block;
    const ValueId table = b_.weight_f32(part(layer, "attention.distances.weight"),
                                        {positions(2 * g_.farthest + 1), head_dim(a_.head_dim)});
    const ValueId near = b_.view(b_.permute(b_.embedding(table, nearest_), {0, 2, 1}),
                                 {batch(), head_dim(a_.head_dim), all});
    const ValueId scores = b_.bmm(q, near);
    const Dim of_heads = blocks_.times(a_.num_heads);
    const ValueId turned = b_.view(scores, {of_heads, g_.block * all});
    const ValueId moved =
        b_.view(b_.slice(turned, 1, 0, g_.block * (all - 1)), {of_heads, g_.block, all - 1});
    return b_.slice(moved, 2, g_.block - 1, all - 1);
  }
  ValueId attend(ValueId x, int64_t layer) {
    const std::string prefix = part(layer, "attention");
    const int64_t count = a_.num_heads, dim = a_.head_dim, inner = count * dim, block = g_.block;
    const Dim whole = blocks_.whole(), of_heads = blocks_.times(count);
    const ValueId filled = fill_blocks(b_, blocks_, x, width_);
    const ValueId q = b_.mul(projection(b_, filled, prefix + ".wq", width_, inner, /*bias=*/false),
                             1.0 / std::sqrt(static_cast<double>(dim)));
    const ValueId both = projection(b_, filled, prefix + ".wkv", width_, 2 * inner, /*bias=*/false);
    const ValueId split = b_.view(q, {batch(), whole, heads(count), head_dim(dim)});
    const ValueId queries = b_.permute(split, {0, 2, 1, 3});
    const auto by_block = [&](int64_t first) {
      return b_.view(b_.slice(both, 2, first, first + inner),
                     {blocks_.count, block, heads(count), head_dim(dim)});
    };
    const ValueId k = by_block(0), v = by_block(inner);
    const ValueId keys = b_.view(b_.permute(k, {2, 0, 3, 1}), {of_heads, dim, block});
    const ValueId values = b_.view(b_.permute(v, {2, 0, 1, 3}), {of_heads, block, dim});
    const ValueId content = b_.bmm(b_.view(queries, {of_heads, block, dim}), keys);
    const ValueId near = by_distance(
        b_.view(queries, {batch(), blocks_.times(count * block), head_dim(dim)}), layer);
    const ValueId scores = b_.view(b_.add(content, near), {count, blocks_.count, block, block});
    const ValueId weights = b_.softmax_last(b_.add(scores, mask_));
    const ValueId mixed = b_.bmm(b_.view(weights, {of_heads, block, block}), values);
    const ValueId by_head = b_.view(mixed, {heads(count), whole, head_dim(dim)});
    const ValueId joined =
        b_.view(b_.permute(by_head, {1, 0, 2}), {batch(), positions(whole), features(inner)});
    const ValueId kept = b_.slice(joined, 1, 0, number_, rows_);
    return projection(b_, kept, prefix + ".wo", inner, width_, /*bias=*/true);
  }

  // -- the other blocks of a layer

  ValueId half_mlp(ValueId x, const std::string& prefix) {
    const int64_t wide = a_.intermediate_size;
    const ValueId inner = silu(b_, projection(b_, x, prefix + ".w1", width_, wide, /*bias=*/true));
    return b_.mul(projection(b_, inner, prefix + ".w2", wide, width_, /*bias=*/true), 0.5);
  }
  // With an even kernel there is one row less behind than before.
  ValueId convolution(ValueId x, const std::string& prefix) {
    const int64_t size = g_.inner, before = g_.time_kernel / 2;
    const int64_t behind = g_.time_kernel - 1 - before;
    const ValueId wide = projection(b_, x, prefix + ".w1", width_, 2 * size, /*bias=*/true);
    const ValueId gate = b_.sigmoid(b_.slice(wide, 2, size, 2 * size));
    std::vector<ValueId> padded = {b_.mul(b_.slice(wide, 2, 0, size), gate)};
    if (before > 0) padded.insert(padded.begin(), zero_rows(b_, before, size));
    if (behind > 0) padded.push_back(zero_rows(b_, behind, size));
    const ValueId all = padded.size() == 1 ? padded.front() : b_.cat(padded, 1);
    const ValueId filters =
        b_.weight_f32(prefix + ".filters.weight", {features(size), 1, g_.time_kernel});
    const ValueId mixed = b_.depthwise_conv1d(b_.permute(all, {0, 2, 1}), filters);
    const ValueId normed =
        batch_norm(b_, b_.permute(mixed, {0, 2, 1}), prefix + ".batch_norm", size);
    return projection(b_, silu(b_, normed), prefix + ".w2", size, width_, /*bias=*/true);
  }
  ValueId layer_of(ValueId x, int64_t layer) {
    const auto normed = [&](const char* name) {
      return layer_norm(b_, x, part(layer, name), kGraniteNormEps);
    };
    x = b_.add(x, half_mlp(normed("first_norm"), part(layer, "first_mlp")));
    x = b_.add(x, attend(normed("attention_norm"), layer));
    x = b_.add(x, convolution(normed("convolution_norm"), part(layer, "convolution")));
    x = b_.add(x, half_mlp(normed("second_norm"), part(layer, "second_mlp")));
    return normed("norm");
  }

  GraphBuilder& b_;
  const ModelConfig& config_;
  const AudioConfig& a_;
  const GraniteAudioConfig& g_;
  const int64_t width_;
  Dim rows_;
  ValueId number_, mask_, nearest_;
  RowBlocks blocks_;
};

}  // namespace

Result<Methods> build_granite_audio(const ModelConfig& config, const BuildOptions& options) {
  GraphBuilder b(static_cast<int32_t>(config.audio->num_layers));
  const int32_t frames = b.symbol("F", options.sound_frames, ValueId{});
  const ValueId given =
      b.input(std::string(kInputFeaturesPort), DType::kF32,
              {batch(), positions(Dim::of(frames)), features(config.audio->mel_bins)});
  const ValueId rows = GraniteAudio(b, config).build(given);
  b.output(placed_sound(b, config, options, rows), std::string(kAudioFeaturesPort));
  Methods methods;
  graph::Graph graph = FERRY_TRY(b.finish());
  methods.push_back({std::string(kForwardMethod), std::move(graph)});
  return methods;
}

}  // namespace ferry::converters
