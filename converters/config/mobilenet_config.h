// The parts of a MobileNet-v5, the vision tower of Gemma 3n: convolutions in stages, each of which
// halves the picture, and one layer that puts the outputs of some stages together. Source: timm,
// models/mobilenetv5.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ferry::converters {

enum class MobileNetKind {
  kEdge,       // a convolution and a linear behind it (EdgeResidual)
  kInverted,   // two linears, with convolutions of single channels before, between and behind them
  kAttention,  // attention of many heads to one head of keys and values (MobileAttention)
};

struct MobileNetBlock {
  MobileNetKind kind = MobileNetKind::kEdge;
  int64_t in = 0, out = 0, middle = 0;  // channels
  int64_t stride = 1;
  // The sides of kernels. kEdge has that between the linears. kAttention has that before, which
  // makes the places of keys and values where `kv_stride` is not 1. 0: there is no convolution.
  int64_t before = 0, between = 0, behind = 0;
  int64_t heads = 0, head_dim = 0, kv_stride = 1;
  bool skips = true;  // the input of the block is added to its output

  // The convolution between the linears has the stride of the block; without it the one before
  // them, and without both the one behind.
  bool strides_before() const { return between == 0; }
  bool strides_behind() const { return between == 0 && before == 0; }
  bool operator==(const MobileNetBlock&) const = default;
};

struct MobileNetConfig {
  int64_t stem = 0;  // channels of the first convolution, whose stride is 2
  bool stem_bias = true;
  std::vector<std::vector<MobileNetBlock>> stages = {};
  // The outputs that are put together, in ascending order: 0 is that of the first convolution, N
  // that of the N-th stage.
  std::vector<int64_t> fused = {};
  int64_t middle = 0;  // channels between the linears behind them
  int64_t side = 0;    // of the square of rows that a picture becomes

  // Returns the side of the picture that a convolution with padding makes.
  static int64_t strided(int64_t side, int64_t stride) { return (side + stride - 1) / stride; }
  // Returns the side of the picture behind the stage; 0 is the first convolution.
  static int64_t side_behind(int64_t image_size, int64_t stage) {
    for (int64_t i = 0; i <= stage; ++i) image_size = strided(image_size, 2);
    return image_size;
  }
  int64_t channels_behind(int64_t stage) const {
    return stage == 0 ? stem : stages[static_cast<size_t>(stage - 1)].back().out;
  }
  int64_t fused_channels() const {
    int64_t sum = 0;
    for (const int64_t stage : fused) sum += channels_behind(stage);
    return sum;
  }
  bool operator==(const MobileNetConfig&) const = default;
};

}  // namespace ferry::converters
