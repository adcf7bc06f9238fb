#include "proof/noise.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/program_interface.h"

namespace ferry::proof {
namespace {

// Half a unit in the last place of f32, relative.
constexpr double kUnit = 0x1p-24;
// A row whose own noise is small by chance counts with at least this share of the noise that is
// usual in the tensor, relative to its values.
constexpr double kLeastShare = 0.7;
// A channel is observed in as many rows as the tensor has. The estimate of a channel includes this
// many additional rows with the noise of a usual channel.
constexpr double kUsualRows = 8;
// Few values vary more than many; see NoiseComparison::ratio().
constexpr double kSpread = 3;
// The ratio of values that cannot be judged; its square is finite.
constexpr double kBeyondNoise = 1e100;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Calls f(row, first channel, offset of the run, its length) for every run of a tensor.
template <class F>
void for_runs(const NoiseLayout& layout, const F& f) {
  const int64_t part = layout.part();
  for (int64_t h = 0; h < layout.heads; ++h) {
    for (int64_t row = 0; row < layout.rows; ++row) {
      f(row, h * part, static_cast<size_t>((h * layout.rows + row) * part),
        static_cast<size_t>(part));
    }
  }
}

class Measurement {
 public:
  Measurement(const NoiseLayout& layout, std::vector<float> exact)
      : exact_(std::move(exact)),
        squares_(exact_.size()),
        values_(static_cast<size_t>(layout.rows)) {
    noise_.layout = layout;
    for_runs(layout, [&](int64_t row, int64_t, size_t at, size_t n) {
      for (size_t i = at; i < at + n; ++i) {
        values_[static_cast<size_t>(row)] += double(exact_[i]) * double(exact_[i]);
      }
    });
  }

  void add(const std::vector<float>& draw) {
    ++draws_;
    for (size_t i = 0; i < exact_.size(); ++i) {
      const double difference = double(draw[i]) - double(exact_[i]);
      if (std::isfinite(difference)) squares_[i] += static_cast<float>(difference * difference);
    }
  }

  TensorNoise take() {
    measure_rows();
    measure_channels();
    return std::move(noise_);
  }

 private:
  void measure_rows() {
    const NoiseLayout& layout = noise_.layout;
    std::vector<double> rows(values_.size()), shares;
    double all = 0;
    for_runs(layout, [&](int64_t row, int64_t, size_t at, size_t n) {
      for (size_t i = at; i < at + n; ++i) rows[static_cast<size_t>(row)] += squares_[i];
    });
    for (size_t r = 0; r < rows.size(); ++r) {
      all += rows[r];
      rows[r] = std::sqrt(rows[r] / (double(layout.channels) * draws_));
      values_[r] = std::sqrt(values_[r] / double(layout.channels));
      if (values_[r] > 0) shares.push_back(rows[r] / values_[r]);
    }
    const double usual = kLeastShare * median(std::move(shares));
    for (size_t r = 0; r < rows.size(); ++r) {
      noise_.rows.push_back(static_cast<float>(std::max(rows[r], usual * values_[r])));
      noise_.values.push_back(static_cast<float>(values_[r]));
    }
    noise_.rms = std::sqrt(all / (double(exact_.size()) * draws_));
  }

  void measure_channels() {
    const NoiseLayout& layout = noise_.layout;
    std::vector<double> channels(static_cast<size_t>(layout.channels));
    for_runs(layout, [&](int64_t row, int64_t channel, size_t at, size_t n) {
      const double rms = noise_.rows[static_cast<size_t>(row)];
      if (rms == 0) return;
      for (size_t i = 0; i < n; ++i) {
        channels[static_cast<size_t>(channel) + i] += double(squares_[at + i]) / (rms * rms);
      }
    });
    const double rows = double(layout.rows) * draws_;
    double mean = 0;
    for (double& channel : channels) {
      channel = (channel + kUsualRows) / (rows + kUsualRows);
      mean += channel / double(channels.size());
    }
    for (const double channel : channels) {
      noise_.channels.push_back(static_cast<float>(std::sqrt(channel / std::max(mean, 1e-30))));
    }
  }

  std::vector<float> exact_;
  std::vector<float> squares_;  // squares of the differences, summed over draws
  std::vector<double> values_;
  double draws_ = 0;
  TensorNoise noise_;
};

bool is_floating_tensor(const std::string& tensor) {
  return tensor != "input_ids" && tensor != kTokenTypeIds && tensor != kSourceIdsPort &&
         tensor != "greedy_ids" && tensor != "logits_f64" && tensor != "pixel_values" &&
         tensor != kInputFeaturesPort && tensor != "image_grid_thw" && tensor != "spatial_shapes" &&
         tensor != "image_sizes" && tensor != "batch_num_images" &&
         tensor != "image_position_ids" && tensor != "pixel_values_videos" &&
         tensor != "video_grid_thw" && tensor != "second_per_grid_ts" &&
         tensor != "video_position_ids" && tensor != "num_frames_per_video" &&
         tensor != "input_features_mask" && !tensor.starts_with("router_experts.") &&
         !tensor.starts_with("greedy_router_experts.");
}

const ReferencePrompt* prompt_of(const Reference& reference, const std::string& name) {
  const auto found = std::ranges::find(reference.prompts(), name, &ReferencePrompt::name);
  return found == reference.prompts().end() ? nullptr : &*found;
}

Result<std::optional<TensorNoise>> measure_tensor(const Reference& exact,
                                                  const ReferencePrompt& prompt,
                                                  const std::string& tensor,
                                                  std::span<const Reference* const> draws) {
  const Shape& shape = exact.shape(prompt, tensor);
  const NoiseLayout layout = noise_layout(tensor, shape);
  if (layout.rows == 0 || layout.channels == 0) return std::optional<TensorNoise>();
  Measurement measurement(layout, FERRY_TRY(exact.floats(prompt, tensor, shape)));
  bool any = false;
  for (const Reference* draw : draws) {
    const ReferencePrompt* same = prompt_of(*draw, prompt.name);
    if (same == nullptr || !same->has(tensor) || draw->shape(*same, tensor) != shape) continue;
    measurement.add(FERRY_TRY(draw->floats(*same, tensor, shape)));
    any = true;
  }
  return any ? std::optional(measurement.take()) : std::nullopt;
}

}  // namespace

NoiseLayout noise_layout(const std::string& tensor, const Shape& shape) {
  if (shape.empty()) return {};
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  const bool kv = tensor.starts_with("cache.") && shape.size() == 4 &&
                  (tensor.ends_with(".key") || tensor.ends_with(".value"));
  if (kv) return {shape[2], shape[1] * shape[3], shape[1]};
  return {shape.back() == 0 ? 0 : count / shape.back(), shape.back(), 1};
}

double TensorNoise::sigma(int64_t row, int64_t channel, float want) const {
  const auto r = static_cast<size_t>(row);
  const double measured = double(rows[r]) * double(channels[static_cast<size_t>(channel)]);
  const double least = kUnit * (std::fabs(double(want)) + double(values[r]));
  return std::sqrt(measured * measured + least * least);
}

double NoiseComparison::Sum::ratio() const {
  if (count == 0) return 0;
  const auto n = static_cast<double>(count);
  return std::sqrt(squares / n) / (1 + kSpread / std::sqrt(n));
}

NoiseComparison::NoiseComparison(const TensorNoise& noise)
    : noise_(&noise),
      rows_(static_cast<size_t>(noise.layout.rows)),
      channels_(static_cast<size_t>(noise.layout.channels)) {}

void NoiseComparison::add(int64_t row, int64_t channel, std::span<const float> got,
                          std::span<const float> want) {
  if (row < 0 || row >= noise_->layout.rows ||
      channel + std::ssize(want) > noise_->layout.channels) {
    largest_ = kBeyondNoise;
    return;
  }
  Sum& sums = rows_[static_cast<size_t>(row)];
  for (size_t i = 0; i < want.size(); ++i) {
    const double difference = double(got[i]) - double(want[i]);
    if (difference == 0) {
      ++sums.count;
      ++channels_[static_cast<size_t>(channel) + i].count;
      continue;
    }
    const double sigma = noise_->sigma(row, channel + static_cast<int64_t>(i), want[i]);
    // A difference between values that cannot differ, such as zeros, cannot be judged, and neither
    // can one that is not finite.
    const double z = sigma > 0 && std::isfinite(difference) ? difference / sigma : kBeyondNoise;
    largest_ = std::max(largest_, std::fabs(z));
    Sum& channel_sums = channels_[static_cast<size_t>(channel) + i];
    for (Sum* sum : {&sums, &channel_sums}) {
      sum->squares += z * z;
      ++sum->count;
    }
  }
}

void NoiseComparison::add(std::span<const float> got, std::span<const float> want) {
  if (std::ssize(want) != noise_->layout.rows * noise_->layout.channels) {
    largest_ = kBeyondNoise;
    return;
  }
  for_runs(noise_->layout, [&](int64_t row, int64_t channel, size_t at, size_t n) {
    add(row, channel, got.subspan(at, n), want.subspan(at, n));
  });
}

double NoiseComparison::ratio() const {
  Sum all;
  double ratio = largest_ / (1 + kSpread);
  for (const Sum& row : rows_) {
    ratio = std::max(ratio, row.ratio());
    all.squares += row.squares;
    all.count += row.count;
  }
  for (const Sum& channel : channels_) ratio = std::max(ratio, channel.ratio());
  return std::max(ratio, all.ratio());
}

Status NoiseModel::add(const Reference& exact, std::span<const Reference* const> draws) {
  for (const ReferencePrompt& prompt : exact.prompts()) {
    for (const auto& [tensor, entry] : prompt.tensors) {
      if (!is_floating_tensor(tensor)) continue;
      std::optional<TensorNoise> noise = FERRY_TRY(measure_tensor(exact, prompt, tensor, draws));
      if (noise) tensors_[{prompt.name, tensor}] = std::move(*noise);
    }
  }
  return {};
}

const TensorNoise* NoiseModel::find(const std::string& prompt, const std::string& tensor) const {
  const auto found = tensors_.find({prompt, tensor});
  return found == tensors_.end() ? nullptr : &found->second;
}

double NoiseModel::logits_rms() const {
  double rms = 0;
  for (const auto& [key, noise] : tensors_) {
    if (key.second == "logits" || key.second == "greedy_logits") rms = std::max(rms, noise.rms);
  }
  return rms;
}

}  // namespace ferry::proof
