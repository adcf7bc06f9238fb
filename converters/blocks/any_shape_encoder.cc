#include "converters/blocks/any_shape_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "converters/blocks/decoder.h"
#include "converters/blocks/decoder_context.h"
#include "converters/blocks/placed_rows.h"
#include "converters/blocks/rope.h"
#include "converters/blocks/rope_angles.h"
#include "converters/keys/vision_tower_keys.h"
#include "core/program_interface.h"

namespace ferry::converters {
namespace {

// The corners of a cell of the table of learned positions.
constexpr int64_t kCorners = 4;

class AnyShapeTower {
 public:
  AnyShapeTower(GraphBuilder& b, const ModelConfig& config, const BuildOptions& options)
      : b_(b),
        v_(*config.vision),
        shape_(*config.vision->any_shape),
        config_(config),
        options_(options) {
    unit_ = v_.shuffle * v_.shuffle;
    options.picture ? take_planes(*options.picture) : take_patches(options.image_patches / unit_);
  }

  void build() {
    const ValueId places = grid_input(kPatchPositionsPort, 2, fixed_.positions);
    if (has_windows()) windows_ = grid_input(kPatchWindowsPort, 1, fixed_.windows);
    ValueId x = embed();
    if (shape_.table > 0) x = b_.add(x, learned_positions());
    if (v_.pre_norm) x = normed(x, "vision.pre_norm");
    rope_ = patch_rope(places);
    if (windows_.valid()) mask_ = window_mask();
    std::vector<ValueId> deep, states = {x};
    for (int64_t layer = 0; layer < v_.depth(); ++layer) {
      b_.probe(fmt::format("vision_hidden_states.{}", layer), x);
      b_.set_layer(static_cast<int32_t>(layer));
      x = b_.add(x, attend(normed(x, part(layer, "attention_norm")), layer));
      x = b_.add(x, mapped(normed(x, part(layer, "ffn_norm")), layer));
      states.push_back(x);
      const auto taken = std::ranges::find(shape_.deepstack, layer);
      if (taken == shape_.deepstack.end()) continue;
      const auto number = taken - shape_.deepstack.begin();
      deep.push_back(merged(x, fmt::format("vision.deepstack.{}", number), /*norm_after=*/true));
    }
    b_.set_layer(static_cast<int32_t>(v_.depth()));
    if (v_.depth() == v_.num_layers) b_.probe("vision_last_hidden_state", x);
    const ValueId features = connected(v_.feature_layers.empty() ? x : side_by_side(states));
    give(features, deep);
  }

 private:
  // Patches of an image of any shape, block by block.
  void take_patches(int64_t most_blocks) {
    const int32_t blocks = b_.symbol("M", most_blocks, ValueId{});
    blocks_ = positions(Dim::of(blocks));
    patches_ = positions(Dim::of(blocks, unit_));
    pixels_ = b_.input(std::string(kPixelValuesPort), DType::kF32,
                       {batch(), blocks_, unit_ * v_.patch_values()});
    b_.bind_symbol(blocks, b_.sym_size(pixels_, 1));
  }

  // Planes of a picture of one shape, which become patches in the order of the image processor. All
  // frames of a patch are equal.
  void take_planes(const ImageShape& picture) {
    const int64_t merge = v_.shuffle, side = v_.patch_size, frames = shape_.temporal_patch_size;
    const int64_t down = picture.rows / merge, across = picture.columns / merge;
    blocks_ = positions(down * across);
    patches_ = positions(picture.patches());
    fixed_ = in_processor_order(grid_inputs(image_grid_of(v_), picture));
    const ValueId planes = b_.input(
        std::string(kPixelValuesPort), DType::kF32,
        {batch(), v_.channels, positions(picture.rows * side), positions(picture.columns * side)});
    const ValueId cut = b_.view(planes, {v_.channels, down, merge, side, across, merge, side});
    const ValueId ordered = b_.permute(cut, {1, 4, 2, 5, 0, 3, 6});
    const Dim channels = picture.patches() * v_.channels;
    const ValueId frame = b_.view(ordered, {channels, 1, side, side});
    const ValueId all = frames > 1 ? b_.expand(frame, {channels, frames, side, side}) : frame;
    pixels_ = b_.view(all, {batch(), blocks_, unit_ * v_.patch_values()});
  }

  // Returns numbers [rows,N] of the patches: an input, or constants of the picture.
  template <typename T>
  ValueId grid_input(std::string_view port, int64_t rows, const std::vector<T>& fixed) {
    constexpr DType kType = std::is_same_v<T, float> ? DType::kF32 : DType::kI64;
    const Dims shape = {rows, patches_};
    if (!options_.picture) return b_.input(std::string(port), kType, shape);
    return b_.literal(kType, shape, graph::literal_of(std::string(port), fixed));
  }

  void give(ValueId features, const std::vector<ValueId>& deepstack) {
    if (options_.placed_rows) {
      const ImageShape& picture = *options_.picture;
      const ImageShape blocks = {picture.rows / v_.shuffle, picture.columns / v_.shuffle};
      features = placed_image(b_, config_, options_, features, deepstack, blocks);
    }
    if (v_.row_marks) features = with_row_marks(features);
    b_.output(features, std::string(kImageFeaturesPort));
    if (options_.placed_rows || deepstack.empty()) return;
    b_.output(deepstack.size() == 1 ? deepstack.front() : b_.cat(deepstack, 0),
              std::string(kDeepstackPort));
  }

  // Returns the rows of a picture with the embedding of a token behind each, as its text has them:
  // [1,R C,E] -> [1,R (C + 1),E] for R rows of C blocks.
  ValueId with_row_marks(ValueId features) {
    const int64_t down = options_.picture->rows / v_.shuffle;
    const int64_t across = options_.picture->columns / v_.shuffle, width = config_.hidden_size;
    std::vector<int64_t> numbers(static_cast<size_t>(down), 0);
    numbers.back() = 1;
    const ValueId table = b_.weight(kRowMarksWeight, {positions(2), converters::features(width)});
    const ValueId order = b_.literal(DType::kI64, {batch(), positions(down)},
                                     graph::literal_of("row_marks", numbers));
    const ValueId marks = embedded(b_, config_, table, order);
    if (down == 1) return b_.cat({features, marks}, 1);
    const ValueId rows =
        b_.view(features, {positions(down), positions(across), converters::features(width)});
    const ValueId ends =
        b_.view(marks, {positions(down), positions(1), converters::features(width)});
    return b_.view(b_.cat({rows, ends}, 1),
                   {batch(), positions(down * (across + 1)), converters::features(width)});
  }

  static std::string part(int64_t layer, const char* name) {
    return fmt::format("vision.layers.{}.{}", layer, name);
  }
  bool is_full(int64_t layer) const {
    return shape_.window == 0 || std::ranges::count(shape_.full, layer) > 0;
  }
  bool has_windows() const {
    for (int64_t layer = 0; layer < v_.num_layers; ++layer) {
      if (!is_full(layer)) return true;
    }
    return false;
  }

  ValueId normed(ValueId x, const std::string& name) {
    return v_.rms_norm ? rms_norm(b_, x, name + ".weight", v_.norm_eps)
                       : layer_norm(b_, x, name, v_.norm_eps);
  }

  // A convolution whose windows do not overlap is a product with the flattened windows.
  ValueId embed() {
    const ValueId rows = b_.view(pixels_, {batch(), patches_, features(v_.patch_values())});
    return projection(b_, rows, "vision.patches", v_.patch_values(), v_.hidden_size,
                      shape_.patch_bias);
  }

  // The mean of the four rows of the table around the place of a patch, by their weights.
  ValueId learned_positions() {
    const ValueId rows = grid_input(kPositionRowsPort, kCorners, fixed_.table_rows);
    const ValueId weights = grid_input(kPositionWeightsPort, kCorners, fixed_.table_weights);
    const ValueId table =
        b_.weight_f32("vision.positions.weight",
                      {positions(shape_.table * shape_.table), features(v_.hidden_size)});
    ValueId sum;
    for (int64_t corner = 0; corner < kCorners; ++corner) {
      const ValueId picked = b_.embedding(table, b_.slice(rows, 0, corner, corner + 1));
      const ValueId weight = b_.unsqueeze(b_.slice(weights, 0, corner, corner + 1), 2);
      const ValueId part = b_.mul(picked, weight);
      sum = sum.valid() ? b_.add(sum, part) : part;
    }
    return sum;
  }

  // Half of the pairs of dimensions are turned by the row of a patch, half by its column.
  RopeTable patch_rope(ValueId places) {
    RopeConfig rope;
    rope.theta = shape_.rope_theta;
    const bool in_turn = shape_.rope_in_turn;
    const std::vector<float> all =
        rope_inverse_frequencies(rope, in_turn ? v_.head_dim() : v_.head_dim() / 2);
    std::vector<float> inverse;
    std::vector<int64_t> axes;
    for (size_t axis = 0; axis < 2; ++axis) {
      for (size_t i = in_turn ? axis : 0; i < all.size(); i += in_turn ? 2 : 1) {
        inverse.push_back(all[i]);
        axes.push_back(static_cast<int64_t>(axis));
      }
    }
    const ValueId angles = angles_by_axis(b_, places, "patch_rope", inverse, axes);
    RopeTable table;
    table.cos = b_.cos(angles);
    table.sin = b_.sin(angles);
    return table;
  }

  // Patches of other windows are hidden: f32 [N,N]. Floats hold the numbers of windows exactly, and
  // need half of the memory of integers.
  ValueId window_mask() {
    const ValueId numbers = b_.to(b_.select(windows_, 0, 0), DType::kF32);
    const ValueId rows = b_.unsqueeze(numbers, 1);
    const ValueId columns = b_.unsqueeze(numbers, 0);
    const ValueId distance = b_.sub(rows, columns);
    const ValueId other = b_.clamp(b_.mul(distance, distance), 0.0, 1.0);
    const ValueId mask = b_.mul(other, static_cast<double>(kMaskedScore));
    b_.name(mask, "window_mask");
    return mask;
  }

  ValueId attend(ValueId x, int64_t layer) {
    const std::string prefix = part(layer, "attention");
    const int64_t size = v_.hidden_size;
    const auto project = [&](const char* name) {
      const ValueId y = projection(b_, x, prefix + name, size, size, v_.qkv_bias);
      return b_.view(y, {batch(), patches_, heads(v_.num_heads), head_dim(v_.head_dim())});
    };
    const ValueId q = rope(b_, rope_, project(".wq"));
    const ValueId k = rope(b_, rope_, project(".wk"));
    const ValueId values = project(".wv");
    const ValueId mixed =
        is_full(layer) ? b_.sdpa_full(q, k, values) : b_.sdpa_masked(q, k, values, mask_);
    const ValueId joined = b_.view(mixed, {batch(), patches_, features(size)});
    return projection(b_, joined, prefix + ".wo", size, size, shape_.bias);
  }

  ValueId mapped(ValueId x, int64_t layer) {
    const std::string prefix = part(layer, "feed_forward");
    const int64_t size = v_.intermediate_size;
    ValueId y = projection(b_, x, prefix + ".w1", v_.hidden_size, size, shape_.bias);
    y = activate(b_, v_.activation, y);
    if (shape_.gated_mlp) {
      y = b_.mul(y, projection(b_, x, prefix + ".w3", v_.hidden_size, size, shape_.bias));
    }
    return projection(b_, y, prefix + ".w2", size, v_.hidden_size, shape_.bias);
  }

  // The states that are features, side by side.
  ValueId side_by_side(const std::vector<ValueId>& states) {
    std::vector<ValueId> taken;
    for (const int64_t layer : v_.feature_layers) {
      taken.push_back(states[static_cast<size_t>(layer)]);
    }
    return taken.size() == 1 ? taken.front() : b_.cat(taken, 2);
  }

  ValueId connected(ValueId x) {
    if (v_.connector == Connector::kMerger) {
      return merged(x, "vision.connector", /*norm_after=*/false);
    }
    if (v_.connector == Connector::kLinearMerger) x = linearly_merged(x);
    const std::string name = "vision.connector";
    const int64_t from = v_.hidden_size * std::max<int64_t>(1, std::ssize(v_.feature_layers));
    const int64_t width = config_.hidden_size;
    const ValueId inner = projection(b_, x, name + ".w1", from, width, v_.connector_bias);
    return projection(b_, activate(b_, v_.connector_activation, inner), name + ".w2", width, width,
                      v_.connector_bias);
  }

  // The patches of each block become one: [1,N,c] -> [1,M,c]. The values of a block are in the
  // order of the reference, all patches of a value behind each other.
  ValueId linearly_merged(ValueId x) {
    const int64_t width = v_.hidden_size;
    x = rms_norm(b_, x, "vision.connector.norm.weight", config_.rms_norm_eps);
    x = b_.view(x, {batch(), blocks_, unit_, features(width)});
    x = b_.view(b_.permute(x, {0, 1, 3, 2}), {batch(), blocks_, features(unit_ * width)});
    return projection(b_, x, "vision.connector.merger", unit_ * width, width, /*bias=*/false);
  }

  // Turns the patches of each block into a row: [1,N,c] -> [1,M,output_size].
  ValueId merged(ValueId x, const std::string& name, bool norm_after) {
    const int64_t wide = unit_ * v_.hidden_size;
    if (!norm_after) x = normed(x, name + ".norm");
    x = b_.view(x, {batch(), blocks_, features(wide)});
    if (norm_after) x = layer_norm(b_, x, name + ".norm", v_.norm_eps);
    const ValueId inner = projection(b_, x, name + ".w1", wide, wide, /*bias=*/true);
    return projection(b_, activate(b_, Activation::kGelu, inner), name + ".w2", wide,
                      shape_.output_size, /*bias=*/true);
  }

  GraphBuilder& b_;
  const VisionConfig& v_;
  const AnyShapeConfig& shape_;
  const ModelConfig& config_;
  const BuildOptions& options_;
  int64_t unit_ = 0;  // patches of a block
  Dim blocks_, patches_;
  ValueId pixels_, windows_, mask_;
  GridInputs fixed_;  // of a picture of one shape
  RopeTable rope_;
};

}  // namespace

ImageGrid image_grid_of(const VisionConfig& vision) {
  const AnyShapeConfig& shape = *vision.any_shape;
  return {vision.patch_size, shape.temporal_patch_size, vision.shuffle, shape.window, shape.table};
}

Result<Methods> build_any_shape_encoder(const ModelConfig& config, const BuildOptions& options) {
  GraphBuilder b(static_cast<int32_t>(config.vision->depth()));
  AnyShapeTower(b, config, options).build();
  Methods methods;
  graph::Graph graph = FERRY_TRY(b.finish());
  methods.push_back({std::string(kForwardMethod), std::move(graph)});
  return methods;
}

}  // namespace ferry::converters
