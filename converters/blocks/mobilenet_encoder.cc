#include "converters/blocks/mobilenet_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "converters/blocks/placed_rows.h"
#include "converters/blocks/token_ranges.h"
#include "core/program_interface.h"

namespace ferry::converters {
namespace {

// A picture of some channels: a row for each pixel, f32 [1,side*side,channels].
struct Picture {
  ValueId rows;
  int64_t side, channels;
  int64_t pixels() const { return side * side; }
};

// Where a resized picture takes its pixels: of each new row or column the two old ones, and the
// share of the second.
struct Taps {
  std::vector<int64_t> first, second;
  std::vector<float> share;
};

Taps linear_taps(int64_t from, int64_t to) {
  Taps taps;
  const float step = static_cast<float>(from) / static_cast<float>(to);
  for (int64_t i = 0; i < to; ++i) {
    const float at = std::max(step * (static_cast<float>(i) + 0.5F) - 0.5F, 0.0F);
    const int64_t low = std::min(static_cast<int64_t>(at), from - 1);
    taps.first.push_back(low);
    taps.second.push_back(std::min(low + 1, from - 1));
    taps.share.push_back(std::min(at - static_cast<float>(low), 1.0F));
  }
  return taps;
}

class MobileNet {
 public:
  MobileNet(GraphBuilder& b, const VisionConfig& v) : b_(b), v_(v), net_(*v.mobilenet) {}

  // Returns the rows of the tower, f32 [1,N,hidden_size].
  ValueId build(ValueId pixels) {
    Picture x = stem(pixels);
    std::vector<Picture> states = {x};
    int64_t number = 0;
    for (const auto& stage : net_.stages) {
      for (const MobileNetBlock& block : stage) {
        b_.probe(fmt::format("vision_hidden_states.{}", number), x.rows);
        b_.set_layer(static_cast<int32_t>(number));
        x = block_of(x, block, fmt::format("vision.layers.{}", number));
        ++number;
      }
      states.push_back(x);
    }
    b_.set_layer(static_cast<int32_t>(number));
    const ValueId rows = fused(states);
    b_.probe("vision_last_hidden_state", rows);
    return rows;
  }

 private:
  // Zeros around a picture for a kernel: as many as the windows of all its pixels need, of which
  // the odd one is behind.
  struct Padding {
    int64_t before, more;
  };
  static Padding padding_of(int64_t side, int64_t kernel, int64_t stride) {
    const int64_t last = (MobileNetConfig::strided(side, stride) - 1) * stride + kernel;
    const int64_t all = std::max<int64_t>(last - side, 0);
    return {all / 2, all % 2};
  }
  // Adds a row and a column of zeros behind those of x [1,C,side,side].
  ValueId with_edge(ValueId x, int64_t channels, int64_t side) {
    const ValueId zero = b_.literal(DType::kF32, {batch(), 1, 1, 1},
                                    graph::literal_of("zero pixel", std::vector<float>{0.0F}));
    const auto zeros = [&](int64_t rows, int64_t columns) {
      return b_.expand(zero, {batch(), channels, rows, columns});
    };
    const ValueId taller = b_.cat({x, zeros(1, side)}, 2);
    return b_.cat({taller, zeros(side + 1, 1)}, 3);
  }
  // Returns the convolution of x [1,C,side,side] as rows. Filters are of single channels, or of
  // all.
  Picture convolved(ValueId x, int64_t side, int64_t in, const std::string& name, int64_t out,
                    int64_t kernel, int64_t stride, bool by_channel, bool bias) {
    const auto [before, more] = padding_of(side, kernel, stride);
    if (more > 0) x = with_edge(x, in, side);
    const ValueId filters =
        b_.weight_f32(name + ".weight", {features(out), by_channel ? 1 : in, kernel, kernel});
    const ValueId added = bias ? b_.weight_f32(name + ".bias", {features(out)}) : ValueId{};
    const ValueId made = b_.conv(
        x, filters, added, {.step = stride, .padding = before, .groups = by_channel ? in : 1});
    Picture y = {{}, MobileNetConfig::strided(side, stride), out};
    y.rows =
        b_.view(b_.permute(made, {0, 2, 3, 1}), {batch(), positions(y.pixels()), features(out)});
    return y;
  }
  Picture convolved(const Picture& x, const std::string& name, int64_t out, int64_t kernel,
                    int64_t stride, bool by_channel) {
    const ValueId square = b_.view(x.rows, {batch(), x.side, x.side, features(x.channels)});
    return convolved(b_.permute(square, {0, 3, 1, 2}), x.side, x.channels, name, out, kernel,
                     stride, by_channel, /*bias=*/false);
  }
  ValueId linear(const Picture& x, const std::string& name, int64_t out) {
    return projection(b_, x.rows, name, x.channels, out, /*bias=*/false);
  }
  ValueId normed(ValueId rows, const std::string& name) {
    return rms_norm(b_, rows, name + ".weight", v_.norm_eps);
  }
  ValueId activated(ValueId rows, const std::string& name) {
    return activate(b_, Activation::kGeluTanh, normed(rows, name));
  }

  Picture stem(ValueId pixels) {
    Picture x = convolved(pixels, v_.image_size, v_.channels, "vision.stem", net_.stem, 3, 2,
                          /*by_channel=*/false, net_.stem_bias);
    x.rows = activated(x.rows, "vision.stem.norm");
    return x;
  }

  Picture block_of(const Picture& x, const MobileNetBlock& block, const std::string& name) {
    Picture y = block.kind == MobileNetKind::kEdge       ? edge(x, block, name)
                : block.kind == MobileNetKind::kInverted ? inverted(x, block, name)
                                                         : attention(x, block, name);
    if (block.kind != MobileNetKind::kEdge) {
      y.rows = b_.mul(y.rows, b_.weight(name + ".scale", {features(y.channels)}));
    }
    if (block.skips) y.rows = b_.add(y.rows, x.rows);
    return y;
  }

  Picture edge(const Picture& x, const MobileNetBlock& block, const std::string& name) {
    Picture y = convolved(x, name + ".between", block.middle, block.between, block.stride,
                          /*by_channel=*/false);
    y.rows = activated(y.rows, name + ".between_norm");
    y.rows = normed(linear(y, name + ".w2", block.out), name + ".w2_norm");
    y.channels = block.out;
    return y;
  }

  Picture inverted(const Picture& x, const MobileNetBlock& block, const std::string& name) {
    Picture y = x;
    if (block.before > 0) {
      y = convolved(y, name + ".before", y.channels, block.before,
                    block.strides_before() ? block.stride : 1, /*by_channel=*/true);
      y.rows = normed(y.rows, name + ".before_norm");
    }
    y.rows = activated(linear(y, name + ".w1", block.middle), name + ".w1_norm");
    y.channels = block.middle;
    if (block.between > 0) {
      y = convolved(y, name + ".between", y.channels, block.between, block.stride,
                    /*by_channel=*/true);
      y.rows = activated(y.rows, name + ".between_norm");
    }
    y.rows = normed(linear(y, name + ".w2", block.out), name + ".w2_norm");
    y.channels = block.out;
    if (block.behind > 0) {
      y = convolved(y, name + ".behind", y.channels, block.behind,
                    block.strides_behind() ? block.stride : 1,
                    /*by_channel=*/true);
      y.rows = normed(y.rows, name + ".behind_norm");
    }
    return y;
  }

  // Keys or values, f32 [1,places,head_dim].
  Picture places(const Picture& x, const MobileNetBlock& block, const std::string& name) {
    Picture y = x;
    if (block.kv_stride > 1) {
      y = convolved(x, name + ".filters", x.channels, block.before, block.kv_stride,
                    /*by_channel=*/true);
      y.rows = normed(y.rows, name + ".norm");
    }
    y.rows = linear(y, name, block.head_dim);
    y.channels = block.head_dim;
    return y;
  }
  // The heads of a pixel are rows of queries to the one head of keys.
  Picture attention(const Picture& x, const MobileNetBlock& block, const std::string& name) {
    const Picture in = {normed(x.rows, name + ".norm"), x.side, x.channels};
    const int64_t width = block.heads * block.head_dim, dim = block.head_dim;
    const double scale = 1.0 / std::sqrt(static_cast<double>(dim));
    const ValueId queries = b_.mul(linear(in, name + ".attention.wq", width), scale);
    const ValueId by_head = b_.view(queries, {batch(), x.pixels() * block.heads, dim});
    const Picture keys = places(in, block, name + ".attention.wk");
    const Picture values = places(in, block, name + ".attention.wv");
    const ValueId columns =
        b_.permute(b_.view(keys.rows, {batch(), keys.pixels(), dim}), {0, 2, 1});
    const ValueId scores = b_.softmax_last(b_.bmm(by_head, columns));
    const ValueId mixed = b_.bmm(scores, b_.view(values.rows, {batch(), values.pixels(), dim}));
    const ValueId joined = b_.view(mixed, {batch(), positions(x.pixels()), features(width)});
    return {projection(b_, joined, name + ".attention.wo", width, block.out, /*bias=*/false),
            x.side, block.out};
  }

  // -- behind the stages

  // Returns pixels of x by their numbers.
  ValueId taken(const Picture& x, const std::string& what, const std::vector<int64_t>& numbers) {
    const Dim count = positions(std::ssize(numbers));
    const ValueId ids = b_.literal(DType::kI64, {batch(), count}, graph::literal_of(what, numbers));
    return b_.embedding(b_.view(x.rows, {positions(x.pixels()), features(x.channels)}), ids);
  }
  // Returns x with the pixels of `side` x `side`, each of which is the nearest.
  Picture enlarged(const Picture& x, int64_t side) {
    if (x.side >= side) return x;
    const float step = static_cast<float>(x.side) / static_cast<float>(side);
    const auto nearest = [&](int64_t i) {
      return std::min(static_cast<int64_t>(static_cast<float>(i) * step), x.side - 1);
    };
    std::vector<int64_t> numbers;
    for (int64_t i = 0; i < side * side; ++i) {
      numbers.push_back(nearest(i / side) * x.side + nearest(i % side));
    }
    return {taken(x, fmt::format("nearest of {} for {}", x.side, side), numbers), side, x.channels};
  }
  Picture averaged(const Picture& x, int64_t side) {
    const int64_t block = x.side / side;
    const ValueId square = b_.view(x.rows, {side, block, side, block, x.channels});
    const ValueId grouped =
        b_.view(b_.permute(square, {0, 2, 4, 1, 3}),
                {batch(), positions(side * side), features(x.channels), block * block});
    return {b_.view(b_.mean_last(grouped), {batch(), positions(side * side), features(x.channels)}),
            side, x.channels};
  }
  // Returns each pixel between the four around its place.
  Picture between(const Picture& x, int64_t side) {
    const Taps taps = linear_taps(x.side, side);
    const std::string what = fmt::format("between {} and {}", x.side, side);
    const auto pixels = [&](const char* corner, const std::vector<int64_t>& rows,
                            const std::vector<int64_t>& columns) {
      std::vector<int64_t> numbers;
      for (const int64_t row : rows) {
        for (const int64_t column : columns) numbers.push_back(row * x.side + column);
      }
      return taken(x, what + corner, numbers);
    };
    const auto shares = [&](const char* name, bool of_rows) {
      std::vector<float> all;
      for (int64_t i = 0; i < side * side; ++i) {
        all.push_back(taps.share[static_cast<size_t>(of_rows ? i / side : i % side)]);
      }
      return b_.literal(DType::kF32, {batch(), positions(side * side), 1},
                        graph::literal_of(what + name, all));
    };
    const ValueId right = shares(" columns", false), down = shares(" rows", true);
    const ValueId one = b_.scalar(1.0F);
    const auto mixed = [&](ValueId a, ValueId c, ValueId share) {
      const ValueId second = b_.mul(c, share);
      const ValueId rest = b_.sub(one, share);
      return b_.add(b_.mul(a, rest), second);
    };
    const ValueId upper_left = pixels(" upper left", taps.first, taps.first);
    const ValueId upper_right = pixels(" upper right", taps.first, taps.second);
    const ValueId lower_left = pixels(" lower left", taps.second, taps.first);
    const ValueId lower_right = pixels(" lower right", taps.second, taps.second);
    const ValueId upper = mixed(upper_left, upper_right, right);
    const ValueId lower = mixed(lower_left, lower_right, right);
    return {mixed(upper, lower, down), side, x.channels};
  }

  // All outputs are as large as the first.
  ValueId fused(const std::vector<Picture>& states) {
    std::vector<ValueId> parts;
    Picture all = {{}, states[static_cast<size_t>(net_.fused.front())].side, net_.fused_channels()};
    for (const int64_t stage : net_.fused) {
      parts.push_back(enlarged(states[static_cast<size_t>(stage)], all.side).rows);
    }
    all.rows = parts.size() == 1 ? parts.front() : b_.cat(parts, 2);
    Picture wide = {
        activated(linear(all, "vision.fusion.w1", net_.middle), "vision.fusion.w1_norm"), all.side,
        net_.middle};
    Picture made = {
        normed(linear(wide, "vision.fusion.w2", v_.hidden_size), "vision.fusion.w2_norm"), all.side,
        v_.hidden_size};
    if (made.side != net_.side) {
      made = made.side % net_.side == 0 ? averaged(made, net_.side) : between(made, net_.side);
    }
    return normed(made.rows, "vision.norm");
  }

  GraphBuilder& b_;
  const VisionConfig& v_;
  const MobileNetConfig& net_;
};

}  // namespace

Result<Methods> build_mobilenet_encoder(const ModelConfig& config, const BuildOptions& options) {
  const VisionConfig& v = *config.vision;
  GraphBuilder b(static_cast<int32_t>(v.num_layers));
  const ValueId pixels = b.input(std::string(kPixelValuesPort), DType::kF32,
                                 {batch(), v.channels, v.image_size, v.image_size});
  const ValueId states = MobileNet(b, v).build(pixels);
  const ValueId scaled = b.mul(states, std::sqrt(static_cast<double>(v.hidden_size)));
  const ValueId rows = encoded_rows(b, config, config.token_ranges.front(), scaled);
  b.output(placed_image(b, config, options, rows, {}, {1, v.image_tokens()}),
           std::string(kImageFeaturesPort));
  Methods methods;
  graph::Graph graph = FERRY_TRY(b.finish());
  methods.push_back({std::string(kForwardMethod), std::move(graph)});
  return methods;
}

int64_t mobilenet_state_size(const VisionConfig& vision) {
  const MobileNetConfig& net = *vision.mobilenet;
  const auto square = [](int64_t side) { return side * side; };
  int64_t side = MobileNetConfig::side_behind(vision.image_size, 0);
  int64_t most = square(side) * net.stem;
  for (const auto& stage : net.stages) {
    for (const MobileNetBlock& block : stage) {
      // An inverted block has its middle channels before its stride.
      const int64_t before = square(side);
      side = MobileNetConfig::strided(side, block.stride);
      const int64_t keys = square(MobileNetConfig::strided(side, block.kv_stride));
      most = std::max({most, before * block.middle, square(side) * block.out,
                       square(side) * block.heads * keys});
    }
  }
  const int64_t fused = square(MobileNetConfig::side_behind(vision.image_size, net.fused.front()));
  return std::max({most, fused * net.middle, fused * vision.hidden_size,
                   square(net.side) * vision.hidden_size});
}

}  // namespace ferry::converters
