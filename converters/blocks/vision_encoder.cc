#include "converters/blocks/vision_encoder.h"

#include <fmt/format.h>

#include "converters/blocks/any_shape_encoder.h"
#include "converters/blocks/blocks.h"
#include "converters/blocks/gemma4_encoder.h"
#include "converters/blocks/mobilenet_encoder.h"
#include "converters/blocks/patch_grid.h"
#include "converters/blocks/placed_rows.h"
#include "core/program_interface.h"

namespace ferry::converters {
namespace {

// The epsilon of the connector's layer norm in the reference, whatever the config says.
constexpr double kConnectorEps = 1e-5;

std::string tower_layer(int64_t layer, const char* part) {
  return fmt::format("vision.layers.{}.{}", layer, part);
}

ValueId norm(GraphBuilder& b, const VisionConfig& v, ValueId x, const std::string& name) {
  return v.rms_norm ? rms_norm(b, x, name + ".weight", v.norm_eps)
                    : layer_norm(b, x, name, v.norm_eps);
}

// Returns the pixels of whole patches, of which the upper left one begins at the corner.
ValueId without_edge(GraphBuilder& b, const VisionConfig& v, ValueId pixels) {
  const int64_t side = v.grid() * v.patch_size;
  if (side == v.image_size) return pixels;
  return b.slice(b.slice(pixels, 2, 0, side), 3, 0, side);
}

// Turns pixels [1,C,H,W] into one row for each patch, [1,n,hidden_size]. A convolution whose
// windows do not overlap is a product with the flattened windows.
ValueId embed_patches(GraphBuilder& b, const VisionConfig& v, ValueId pixels) {
  pixels = without_edge(b, v, pixels);
  const ValueId blocks =
      b.view(pixels, {v.channels, v.grid(), v.patch_size, v.grid(), v.patch_size});
  const ValueId windows = b.permute(blocks, {1, 3, 0, 2, 4});
  const ValueId rows =
      b.view(windows, {batch(), positions(v.patches()), features(v.patch_values())});
  return projection(b, rows, "vision.patches", v.patch_values(), v.hidden_size, v.patch_bias);
}

ValueId add_positions(GraphBuilder& b, const VisionConfig& v, ValueId x) {
  const Dim width = features(v.hidden_size);
  // The two layouts of the table differ in whether the class token has a row.
  if (!v.class_token) {
    return b.add(x, b.weight_f32("vision.positions.weight", {positions(v.patches()), width}));
  }
  const ValueId token = b.weight("vision.class_token", {batch(), positions(1), width});
  x = b.cat({token, x}, 1);
  return b.add(x,
               b.weight("vision.positions.weight", {batch(), positions(v.patches() + 1), width}));
}

// `mask` is invalid where every patch attends to all.
ValueId attend(GraphBuilder& b, const VisionConfig& v, ValueId x, ValueId mask, int64_t layer) {
  const std::string prefix = tower_layer(layer, "attention");
  const int64_t size = v.hidden_size;
  const int64_t rows = v.rows() + (v.class_token ? 1 : 0);
  const auto project = [&](const char* name, const char* norm_name) {
    ValueId y = projection(b, x, prefix + name, size, size, v.qkv_bias);
    if (v.qk_norm && norm_name != nullptr) {
      y = rms_norm(b, y, prefix + norm_name, v.qk_norm_eps);
    }
    return b.view(y, {batch(), positions(rows), heads(v.num_heads), head_dim(v.head_dim())});
  };
  const ValueId q = project(".wq", ".q_norm.weight");
  const ValueId k = project(".wk", ".k_norm.weight");
  const ValueId values = project(".wv", nullptr);
  const ValueId mixed =
      mask.valid() ? b.sdpa_masked(q, k, values, mask) : b.sdpa_full(q, k, values);
  const ValueId joined = b.view(mixed, {batch(), positions(rows), features(size)});
  return projection(b, joined, prefix + ".wo", size, size, /*bias=*/true);
}

ValueId feed_forward(GraphBuilder& b, const VisionConfig& v, ValueId x, int64_t layer) {
  const std::string prefix = tower_layer(layer, "feed_forward");
  const ValueId wide =
      projection(b, x, prefix + ".w1", v.hidden_size, v.intermediate_size, /*bias=*/true);
  return projection(b, activate(b, v.activation, wide), prefix + ".w2", v.intermediate_size,
                    v.hidden_size, /*bias=*/true);
}

// Returns x plus the output of a block, which the tower may scale.
ValueId add_scaled(GraphBuilder& b, const VisionConfig& v, ValueId x, ValueId y,
                   const std::string& block) {
  if (v.layer_scale) y = b.mul(y, b.weight(block + ".scale", {features(v.hidden_size)}));
  return b.add(x, y);
}

// Returns the states that are features, which need not be the output of the last layer.
ValueId side_by_side(GraphBuilder& b, const VisionConfig& v, const std::vector<ValueId>& states) {
  std::vector<ValueId> taken;
  for (const int64_t layer : v.feature_layers) taken.push_back(states[static_cast<size_t>(layer)]);
  return taken.size() == 1 ? taken.front() : b.cat(taken, 2);
}

// `x` has the embeddings of the patches with their positions.
ValueId tower(GraphBuilder& b, const VisionConfig& v, ValueId x, ValueId mask) {
  if (v.pre_norm) x = layer_norm(b, x, "vision.pre_norm", v.norm_eps);
  std::vector<ValueId> states = {x};
  for (int64_t layer = 0; layer < v.depth(); ++layer) {
    b.probe(fmt::format("vision_hidden_states.{}", layer), x);
    b.set_layer(static_cast<int32_t>(layer));
    const ValueId attended =
        attend(b, v, norm(b, v, x, tower_layer(layer, "attention_norm")), mask, layer);
    x = add_scaled(b, v, x, attended, tower_layer(layer, "attention"));
    const ValueId mapped = feed_forward(b, v, norm(b, v, x, tower_layer(layer, "ffn_norm")), layer);
    x = add_scaled(b, v, x, mapped, tower_layer(layer, "feed_forward"));
    states.push_back(x);
  }
  b.set_layer(static_cast<int32_t>(v.depth()));
  if (!v.feature_layers.empty()) return side_by_side(b, v, states);
  if (v.final_norm) x = layer_norm(b, x, "vision.norm", v.norm_eps);
  b.probe("vision_last_hidden_state", x);
  return x;
}

// Turns [1,n,c] into [1, n / s^2, s^2 c]. A row has the rows of an s x s block of patches side by
// side, or their average.
ValueId pixel_shuffle(GraphBuilder& b, const VisionConfig& v, ValueId x) {
  if (v.drops_first) x = b.slice(x, 1, 1, v.patches() + (v.class_token ? 1 : 0));
  if (v.shuffle == 1 && v.connector != Connector::kAverage) return x;
  const int64_t blocks = v.grid() / v.shuffle;
  const ValueId square = b.view(x, {blocks, v.shuffle, blocks, v.shuffle, v.hidden_size});
  if (v.connector == Connector::kAverage) {
    const ValueId grouped = b.view(
        b.permute(square, {0, 2, 4, 1, 3}),
        {batch(), positions(v.image_tokens()), features(v.hidden_size), v.shuffle * v.shuffle});
    return b.view(b.mean_last(grouped),
                  {batch(), positions(v.image_tokens()), features(v.hidden_size)});
  }
  const ValueId grouped = b.permute(square, {0, 2, 1, 3, 4});
  return b.view(grouped, {batch(), positions(v.image_tokens()), features(v.shuffled_size())});
}

ValueId connect(GraphBuilder& b, const VisionConfig& v, ValueId x, int64_t width) {
  const std::string name = "vision.connector";
  if (v.connector == Connector::kAverage) x = rms_norm(b, x, name + ".norm.weight", v.norm_eps);
  if (v.connector != Connector::kMlp) {
    const bool bias = v.connector == Connector::kLinear && v.connector_bias;
    return projection(b, x, name + ".w1", v.shuffled_size(), width, bias);
  }
  const int64_t between = v.connector_size > 0 ? v.connector_size : width;
  const ValueId normed = v.connector_norm ? layer_norm(b, x, name + ".norm", kConnectorEps) : x;
  const ValueId inner =
      projection(b, normed, name + ".w1", v.shuffled_size(), between, v.connector_bias);
  return projection(b, activate(b, v.connector_activation, inner), name + ".w2", between, width,
                    v.connector_bias);
}

// Returns the features of a tile, and the newline behind them where pictures have tiles together.
ValueId with_newline(GraphBuilder& b, const VisionConfig& v, ValueId rows, int64_t width) {
  if (!v.tiled) return rows;
  const ValueId newline = b.weight_f32("vision.newline", {batch(), positions(1), features(width)});
  return b.cat({rows, newline}, 1);
}

// Returns features of pixel_values [1,3,S,S].
ValueId encode_square(GraphBuilder& b, const VisionConfig& v, const BuildOptions&, int64_t width) {
  const ValueId pixels = b.input(std::string(kPixelValuesPort), DType::kF32,
                                 {batch(), v.channels, v.image_size, v.image_size});
  const ValueId x = add_positions(b, v, embed_patches(b, v, pixels));
  return with_newline(b, v, connect(b, v, pixel_shuffle(b, v, tower(b, v, x, {})), width), width);
}

// Returns features of pixel_values [1,P,V] and spatial_shapes [1,2], or of a picture of one shape.
ValueId encode_list(GraphBuilder& b, const VisionConfig& v, const BuildOptions& options,
                    int64_t width) {
  const auto [pixels, shapes] = listed_patches(b, v, options);
  const PatchGrid grid(b, v, shapes);
  const ValueId table =
      b.weight_f32("vision.positions.weight", {positions(v.patches()), features(v.hidden_size)});
  const ValueId embedded =
      projection(b, pixels, "vision.patches", v.patch_values(), v.hidden_size, /*bias=*/true);
  const ValueId mask = grid.mask();
  const ValueId x = tower(b, v, b.add(embedded, grid.positions_of(table)), mask);
  const ValueId squares =
      b.view(grid.by_squares(x, v.hidden_size),
             {batch(), positions(v.image_tokens()), features(v.shuffled_size())});
  return connect(b, v, squares, width);
}

}  // namespace

Result<Methods> build_vision_encoder(const ModelConfig& config, const BuildOptions& options) {
  const VisionConfig& v = *config.vision;
  if (v.any_shape) return build_any_shape_encoder(config, options);
  if (v.gemma4) return build_gemma4_encoder(config, options);
  if (v.mobilenet) return build_mobilenet_encoder(config, options);
  GraphBuilder b(static_cast<int32_t>(v.depth()));
  const auto encode = v.max_patches > 0 ? encode_list : encode_square;
  const ValueId rows = encode(b, v, options, config.hidden_size);
  b.output(placed_image(b, config, options, rows, {}, {1, v.image_tokens()}),
           std::string(kImageFeaturesPort));
  Methods methods;
  graph::Graph graph = FERRY_TRY(b.finish());
  methods.push_back({std::string(kForwardMethod), std::move(graph)});
  return methods;
}

}  // namespace ferry::converters
