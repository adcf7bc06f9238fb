#include "converters/blocks/usm_front.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace ferry::converters {
namespace {

constexpr int64_t kKernel = 3, kStep = 2, kPadding = 1;

class UsmFront {
 public:
  UsmFront(GraphBuilder& b, const AudioConfig& audio) : b_(b), a_(audio), g_(*audio.usm) {}

  UsmRows build(ValueId frames) {
    ValueId x = b_.unsqueeze(frames, 1);
    x = g_.gemma3n ? causally_convolved(x, 0, 1) : convolved(x, 0, 1);
    x = b_.permute(x, {0, 3, 1, 2});
    x = g_.gemma3n ? causally_convolved(x, 1, g_.channels[0]) : convolved(x, 1, g_.channels[0]);
    UsmRows rows;
    rows.count = positions(b_.graph()[x].shape[1]);
    rows.number = g_.gemma3n ? number_ : b_.sym_size(x, 1);
    if (!g_.gemma3n) b_.bind_symbol(rows.count.symbol, rows.number);
    const int64_t bins = g_.gemma3n ? g_.gemma3n->bins_behind(2, a_.mel_bins) : g_.channels[0] / 4;
    const int64_t joined = bins * g_.channels[1];
    x = b_.view(x, {batch(), rows.count, features(joined)});
    rows.x = projection(b_, x, "audio.subsampling", joined, a_.to_rows->width, /*bias=*/false);
    return rows;
  }

 private:
  // x [1,in,frames,bins] becomes [1,frames / 2,bins / 2,channels].
  ValueId convolved(ValueId x, int64_t number, int64_t in) {
    const std::string name = fmt::format("audio.convolutions.{}", number);
    const int64_t out = g_.channels[number];
    b_.windows(fmt::format("F{}", number + 1), b_.graph()[x].shape[2], kKernel, kStep, kPadding);
    const ValueId weight = b_.weight_f32(name + ".weight", {features(out), in, kKernel, kKernel});
    const ValueId made = b_.conv(x, weight, {}, {.step = kStep, .padding = kPadding});
    const ValueId scale = b_.weight_f32(name + ".norm.weight", {features(out)});
    return b_.relu(b_.layer_norm(b_.permute(made, {0, 2, 3, 1}), scale, {}, g_.norm_eps));
  }

  // x [1,in,frames,bins] becomes [1,rows,bins,channels], as Gemma 3n makes it.
  ValueId causally_convolved(ValueId x, int64_t number, int64_t in) {
    const Gemma3nAudioConfig& own = *g_.gemma3n;
    const std::string name = fmt::format("audio.convolutions.{}", number);
    const auto [over_time, over_bins] = own.kernels[number];
    const auto [step, step_bins] = own.steps[number];
    const int64_t out = g_.channels[number], bins = own.bins_behind(number, a_.mel_bins);
    if (over_time > 1) {
      const int64_t values = in * (over_time - 1) * bins;
      const ValueId behind =
          b_.literal(DType::kF32, {batch(), in, over_time - 1, bins},
                     graph::zero_literal(static_cast<uint64_t>(values) * sizeof(float)));
      x = b_.cat({x, behind}, 2);
    }
    if (step > 1) {
      b_.windows(fmt::format("F{}", number + 1), b_.graph()[x].shape[2], over_time, step);
    }
    const ValueId weight =
        b_.weight_f32(name + ".weight", {features(out), in, over_time, over_bins});
    const ValueId made = b_.conv(
        x, weight, {},
        {.step = step, .padding = 0, .groups = 1, .last_step = step_bins, .last_padding = 1});
    const ValueId rows = b_.permute(made, {0, 2, 3, 1});
    number_ = b_.sym_size(rows, 1);
    if (step > 1) b_.bind_symbol(b_.graph()[rows].shape[1].symbol, number_);
    const ValueId normed = normed_so_far(rows, own.bins_behind(number + 1, a_.mel_bins), out);
    return b_.relu(b_.mul(normed, b_.weight_f32(name + ".norm.weight", {features(out)})));
  }

  // Applies a norm to x [1,T,bins,channels]. The mean of a row is that of all values up to it, and
  // its variance that of the differences of each row to the mean of that row.
  ValueId normed_so_far(ValueId x, int64_t bins, int64_t channels) {
    const Dim count = positions(b_.graph()[x].shape[1]);
    const int64_t values = bins * channels;
    const ValueId rows = b_.view(x, {batch(), count, features(values)});
    const ValueId numbers = b_.to(b_.arange(0, number_, count), DType::kF32);
    const ValueId ordinals = b_.add(numbers, b_.scalar(1.0F));
    const ValueId counts = b_.unsqueeze(b_.mul(ordinals, static_cast<double>(values)), 0);
    const auto mean_so_far = [&](ValueId of) {
      const ValueId sums = b_.select(b_.sum_last(of), 2, 0);
      return b_.unsqueeze(b_.div(b_.cumsum_last(sums), counts), 2);
    };
    const ValueId centred = b_.sub(rows, mean_so_far(rows));
    const ValueId variance = mean_so_far(b_.mul(centred, centred));
    const ValueId shifted = b_.add(variance, b_.scalar(static_cast<float>(g_.gemma3n->group_eps)));
    const ValueId normed = b_.mul(centred, b_.rsqrt(shifted));
    return b_.view(normed, {batch(), count, bins, features(channels)});
  }

  GraphBuilder& b_;
  const AudioConfig& a_;
  const UsmAudioConfig& g_;
  ValueId number_ = {};  // of the rows of the last convolution
};

}  // namespace

UsmRows usm_front(GraphBuilder& b, const ModelConfig& config, ValueId frames) {
  return UsmFront(b, *config.audio).build(frames);
}

// A convolution over one row and one channel, whose weights are 1, leaves rows out.
ValueId every_row(GraphBuilder& b, ValueId x, int64_t step, int64_t width) {
  if (step == 1) return x;
  const int32_t kept = b.windows("R", b.graph()[x].shape[1], 1, step);
  const ValueId ones =
      b.literal(DType::kF32, {features(width), 1, 1},
                graph::literal_of(fmt::format("ones of {} channels", width),
                                  std::vector<float>(static_cast<size_t>(width), 1.0F)));
  const ValueId chosen = b.conv(b.permute(x, {0, 2, 1}), ones, {}, {.step = step, .groups = width});
  const ValueId rows = b.permute(chosen, {0, 2, 1});
  b.bind_symbol(kept, b.sym_size(rows, 1));
  return rows;
}

}  // namespace ferry::converters
