#include "converters/blocks/gemma4_encoder.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <utility>

#include "converters/blocks/decoder_context.h"
#include "converters/blocks/patch_grid.h"
#include "converters/blocks/placed_rows.h"
#include "converters/blocks/rope.h"
#include "converters/blocks/rope_angles.h"
#include "core/program_interface.h"

namespace ferry::converters {
namespace {

// The reference turns padding by this place, which shows in its states.
constexpr float kOfPadding = -1.0F;

class Gemma4Tower {
 public:
  // `pixels` and `shapes` are those of listed_patches().
  Gemma4Tower(GraphBuilder& b, const VisionConfig& v, ValueId pixels, ValueId shapes)
      : b_(b),
        v_(v),
        tower_(*v.gemma4),
        patches_(positions(v.max_patches)),
        pixels_(pixels),
        grid_(b, v, shapes) {}

  // Returns the features before the linear of the connector, f32 [1,N,hidden_size].
  ValueId build() {
    const auto [row, column] = grid_.places(kOfPadding);
    const ValueId patches = embedded();
    ValueId x = b_.add(patches, learned_positions(row, column));
    rope_ = patch_rope(row, column);
    mask_ = grid_.mask();
    for (int64_t layer = 0; layer < v_.num_layers; ++layer) {
      b_.probe(fmt::format("vision_hidden_states.{}", layer), x);
      b_.set_layer(static_cast<int32_t>(layer));
      const ValueId attended = attend(normed(x, layer, "attention_norm"), layer);
      x = b_.add(x, normed(attended, layer, "post_attention_norm"));
      const ValueId mapped = feed_forward(normed(x, layer, "ffn_norm"), layer);
      x = b_.add(x, normed(mapped, layer, "post_ffn_norm"));
    }
    b_.set_layer(static_cast<int32_t>(v_.num_layers));
    x = standardized(pooled(x));
    b_.probe("vision_last_hidden_state", x);
    return x;
  }

 private:
  static std::string part(int64_t layer, const char* name) {
    return fmt::format("vision.layers.{}.{}", layer, name);
  }
  ValueId normed(ValueId x, int64_t layer, const char* name) {
    return rms_norm(b_, x, part(layer, name) + ".weight", v_.norm_eps);
  }

  // Pixels from 0 to 1 become values from -1 to 1.
  ValueId embedded() {
    const ValueId centred = b_.mul(b_.sub(pixels_, b_.scalar(0.5F)), 2.0);
    return projection(b_, centred, "vision.patches", v_.patch_values(), v_.hidden_size,
                      /*bias=*/false);
  }
  // The sum of a vector for the column and one for the row of each patch; padding has none.
  ValueId learned_positions(ValueId row, ValueId column) {
    const auto looked_up = [&](const char* table, ValueId places) {
      const ValueId ids = b_.view(b_.to(b_.relu(places), DType::kI64), {batch(), patches_});
      return b_.embedding(
          b_.weight_f32(table, {positions(tower_.positions), features(v_.hidden_size)}), ids);
    };
    const ValueId across = looked_up("vision.column_positions.weight", column);
    const ValueId down = looked_up("vision.row_positions.weight", row);
    const ValueId sum = b_.add(across, down);
    return b_.mul(sum, b_.view(grid_.is_patch(), {batch(), patches_, 1}));
  }

  // The halves of a head are turned by column and by row: f32 [P,1,2,head_dim / 2].
  RopeTable patch_rope(ValueId row, ValueId column) {
    RopeConfig rope;
    rope.theta = tower_.rope_theta;
    const int64_t half = tower_.head_dim / 2;
    const ValueId frequencies =
        b_.literal(DType::kF32, {1, 1, 1, half},
                   frequencies_literal("patch_rope", rope_inverse_frequencies(rope, half)));
    const auto angles = [&](ValueId places) {
      return b_.mul(b_.view(places, {v_.max_patches, 1, 1, 1}), frequencies);
    };
    const ValueId both = b_.cat({angles(column), angles(row)}, 2);
    RopeTable table;
    table.cos = b_.cos(both);
    table.sin = b_.sin(both);
    return table;
  }

  // Applies a linear layer, whose input and output the tower may hold between limits.
  ValueId linear(ValueId x, const std::string& name, int64_t in, int64_t out) {
    const auto held = [&](ValueId value, const char* least, const char* most) {
      if (!tower_.clips) return value;
      const ValueId low = b_.weight_f32(name + least, {});
      return b_.clamp(value, low, b_.weight_f32(name + most, {}));
    };
    const ValueId y =
        projection(b_, held(x, ".input_min", ".input_max"), name, in, out, /*bias=*/false);
    return held(y, ".output_min", ".output_max");
  }

  ValueId attend(ValueId x, int64_t layer) {
    const std::string prefix = part(layer, "attention");
    const int64_t dim = tower_.head_dim, half = dim / 2, all = v_.num_heads * dim;
    const auto by_head = [&](const char* name, int64_t count) {
      const ValueId rows = linear(x, prefix + name, v_.hidden_size, count * dim);
      return b_.view(rows, {batch(), patches_, heads(count), head_dim(dim)});
    };
    const auto turned = [&](const char* name, const char* norm, int64_t count) {
      const ValueId rows = rms_norm(b_, by_head(name, count), prefix + norm, v_.norm_eps);
      const ValueId halves = rope(b_, rope_, b_.view(rows, {v_.max_patches, count, 2, half}));
      return b_.view(halves, {batch(), patches_, heads(count), head_dim(dim)});
    };
    const ValueId q = turned(".wq", ".q_norm.weight", v_.num_heads);
    const ValueId k = turned(".wk", ".k_norm.weight", tower_.num_kv_heads);
    const ValueId values = bare_rms_norm(b_, by_head(".wv", tower_.num_kv_heads), v_.norm_eps);
    const ValueId mixed = b_.sdpa_masked(q, k, values, mask_, /*scale=*/1.0);
    return linear(b_.view(mixed, {batch(), patches_, features(all)}), prefix + ".wo", all,
                  v_.hidden_size);
  }

  ValueId feed_forward(ValueId x, int64_t layer) {
    const std::string prefix = part(layer, "feed_forward");
    const int64_t size = v_.intermediate_size;
    const ValueId gate =
        activate(b_, v_.activation, linear(x, prefix + ".w1", v_.hidden_size, size));
    const ValueId up = linear(x, prefix + ".w3", v_.hidden_size, size);
    return linear(b_.mul(gate, up), prefix + ".w2", size, v_.hidden_size);
  }

  // Returns the mean of each square of patches, times the root of the width: [1,N,hidden_size].
  ValueId pooled(ValueId x) {
    const int64_t square = v_.shuffle * v_.shuffle;
    const ValueId squares = b_.view(grid_.by_squares(x, v_.hidden_size),
                                    {v_.image_tokens(), square, features(v_.hidden_size)});
    const ValueId mean = b_.mean_last(b_.permute(squares, {0, 2, 1}));
    return b_.mul(b_.view(mean, {batch(), positions(v_.image_tokens()), features(v_.hidden_size)}),
                  std::sqrt(static_cast<double>(v_.hidden_size)));
  }
  ValueId standardized(ValueId x) {
    if (!tower_.standardizes) return x;
    const Dims width = {features(v_.hidden_size)};
    const ValueId shifted = b_.sub(x, b_.weight_f32("vision.features.shift", width));
    return b_.mul(shifted, b_.weight_f32("vision.features.scale", width));
  }

  GraphBuilder& b_;
  const VisionConfig& v_;
  const Gemma4TowerConfig& tower_;
  const Dim patches_;
  const ValueId pixels_;
  PatchGrid grid_;
  RopeTable rope_;
  ValueId mask_;
};

}  // namespace

Result<Methods> build_gemma4_encoder(const ModelConfig& config, const BuildOptions& options) {
  const VisionConfig& v = *config.vision;
  GraphBuilder b(static_cast<int32_t>(v.num_layers));
  const auto [pixels, shapes] = listed_patches(b, v, options);
  const ValueId states = Gemma4Tower(b, v, pixels, shapes).build();
  const ValueId normed = bare_rms_norm(b, states, v.norm_eps);
  const ValueId rows = projection(b, normed, "vision.connector.w1", v.hidden_size,
                                  config.hidden_size, /*bias=*/false);
  b.output(placed_image(b, config, options, rows, {}, {1, v.image_tokens()}),
           std::string(kImageFeaturesPort));
  Methods methods;
  graph::Graph graph = FERRY_TRY(b.finish());
  methods.push_back({std::string(kForwardMethod), std::move(graph)});
  return methods;
}

}  // namespace ferry::converters
