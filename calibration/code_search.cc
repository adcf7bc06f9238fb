#include "calibration/code_search.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "calibration/multiples.h"
#include "core/dtype.h"
#include "graph/quantization/groups.h"
#include "kernels/compute.h"

namespace ferry::calibration {
namespace {

// Codes of this many columns are chosen before the errors are carried to later columns.
constexpr size_t kBlockColumns = 128;
// Rows are computed in tiles of this size, which share the products with H.
constexpr size_t kTileRows = 256;
// How often scales and single codes are improved after the first choice.
constexpr int kSweeps = 4;
// Scales that are tried for a group: the largest magnitude divided by these numbers of steps.
constexpr int kScales4 = 40, kScales8 = 12;
constexpr float kLeast4 = 5.5f, kMost4 = 12.0f, kLeast8 = 126.0f, kMost8 = 137.0f;

// Layout holds the scheme, the groups and the order of columns, which all rows share.
struct Layout {
  graph::QuantizationScheme scheme;
  size_t columns, group, groups;
  float low, high;                 // the range of the codes
  std::vector<uint32_t> group_of;  // the group of the q-th column of Factor::order
  std::vector<size_t> position;    // of each column in Factor::order
  std::vector<float> diagonal;     // of H, in the order of the columns

  Layout(const graph::QuantizationScheme& given, const Factor& factor) : scheme(given) {
    columns = factor.order.size();
    group = scheme.group == 0 ? columns : static_cast<size_t>(scheme.group);
    groups = columns / group;
    low = scheme.bits == 4 ? -8.0f : -128.0f;
    high = -low - 1;
    group_of.resize(columns);
    position.resize(columns);
    diagonal.resize(columns);
    for (size_t q = 0; q < columns; ++q) {
      const auto column = static_cast<size_t>(factor.order[q]);
      group_of[q] = static_cast<uint32_t>(column / group);
      position[column] = q;
      diagonal[column] = factor.matrix[q * columns + q];
    }
  }
  float stored(float scale) const {
    if (scheme.scale_dtype == DType::kF32) return scale;
    uint16_t bits = 0;
    float rounded = 0;
    from_f32(scheme.scale_dtype, &scale, reinterpret_cast<std::byte*>(&bits), 1);
    to_f32(scheme.scale_dtype, reinterpret_cast<const std::byte*>(&bits), &rounded, 1);
    return rounded;
  }
  float code(float steps) const { return std::nearbyint(std::clamp(steps, low, high)); }
};

// Returns the scale of least weighted error of one group among the candidates, as it is stored.
float choose_scale(const Layout& layout, const float* values, const float* weights) {
  float largest = 0;
  for (size_t i = 0; i < layout.group; ++i) largest = std::max(largest, std::fabs(values[i]));
  if (largest < graph::kSmallestScale * layout.high) return layout.stored(graph::kZeroGroupScale);
  const bool four = layout.scheme.bits == 4;
  const int count = four ? kScales4 : kScales8;
  const float least = four ? kLeast4 : kLeast8, most = four ? kMost4 : kMost8;
  float best = 0, best_error = 0;
  for (int c = 0; c < count; ++c) {
    const float steps =
        least + (most - least) * static_cast<float>(c) / static_cast<float>(count - 1);
    const float inverse = steps / largest;
    float products = 0, squares = 0;
    for (size_t i = 0; i < layout.group; ++i) {
      const float q = layout.code(values[i] * inverse), weighted = weights[i] * q;
      products += weighted * values[i];
      squares += weighted * q;
    }
    if (!(squares > 0) || !(products > 0)) continue;
    const float scale = layout.stored(products / squares);
    if (!(scale >= graph::kSmallestScale)) continue;
    float error = 0;
    for (size_t i = 0; i < layout.group; ++i) {
      const float e = values[i] - layout.code(values[i] / scale) * scale;
      error += weights[i] * e * e;
    }
    if (best == 0 || error < best_error) {
      best = scale;
      best_error = error;
    }
  }
  return best == 0 ? layout.stored(largest / layout.high) : best;
}

// A tile of rows, with columns in the order of Factor.
class Tile {
 public:
  Tile(const Layout& layout, const Factor& factor, std::span<const float> values)
      : layout_(layout),
        factor_(factor),
        columns_(layout.columns),
        rows_(values.size() / columns_),
        values_(values.size()),
        errors_(values.size()),
        codes_(values.size()),
        scales_(rows_ * layout.groups) {
    for (size_t r = 0; r < rows_; ++r) {
      const float* from = values.data() + r * columns_;
      for (size_t q = 0; q < columns_; ++q) values_[r * columns_ + q] = from[factor.order[q]];
    }
  }

  void choose(std::span<const float> values, ThreadPool& pool) {
    pool.parallel_for(rows_, [&](size_t r) {
      choose_scales(r, values.data() + r * columns_);
      choose_by_factor(r);
    });
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      gradients(pool);
      pool.parallel_for(rows_, [&](size_t r) {
        // A scale of a whole row hardly changes, and costs as much as all codes of the row.
        if (layout_.groups > 1) improve_scales(r);
        improve_codes(r);
      });
    }
  }

  // Replaces codes and scales of rows for which the given ones have a smaller error. Returns the
  // sums of the errors before and after.
  void compare(std::span<const std::byte> codes, std::span<const std::byte> scales,
               ThreadPool& pool, ChosenRows& sums) {
    const std::vector<double> own = costs(pool);
    const std::vector<float> own_codes = codes_, own_scales = scales_;
    take(codes, scales);
    const std::vector<double> nearest = costs(pool);
    for (size_t r = 0; r < rows_; ++r) {
      sums.nearest_error += nearest[r];
      sums.error += std::min(own[r], nearest[r]);
      if (!(own[r] < nearest[r])) continue;
      std::copy_n(own_codes.data() + r * columns_, columns_, codes_.data() + r * columns_);
      std::copy_n(own_scales.data() + r * layout_.groups, layout_.groups,
                  scales_.data() + r * layout_.groups);
    }
  }

  // Returns the sum of the errors of all rows with the given codes and scales.
  double error_of(std::span<const std::byte> codes, std::span<const std::byte> scales,
                  ThreadPool& pool) {
    take(codes, scales);
    const std::vector<double> errors = costs(pool);
    return std::accumulate(errors.begin(), errors.end(), 0.0);
  }

  // Writes the codes and scales as they are stored.
  void store(std::span<std::byte> codes, std::span<std::byte> scales) const {
    std::vector<float> multiples(columns_);
    const std::vector<float> ones(layout_.groups, 1.0f);
    for (size_t r = 0; r < rows_; ++r) {
      for (size_t q = 0; q < columns_; ++q) {
        multiples[static_cast<size_t>(factor_.order[q])] = codes_[r * columns_ + q];
      }
      const auto code_bytes = columns_ * static_cast<size_t>(layout_.scheme.bits) / 8;
      graph::encode_groups(layout_.scheme.bits, layout_.scheme.order,
                           {multiples.data(), layout_.group, layout_.groups}, ones.data(),
                           codes.data() + r * code_bytes);
    }
    from_f32(layout_.scheme.scale_dtype, scales_.data(), scales.data(), scales_.size());
  }

 private:
  float scale(size_t r, size_t q) const {
    return scales_[r * layout_.groups + layout_.group_of[q]];
  }

  void choose_scales(size_t r, const float* values) {
    for (size_t g = 0; g < layout_.groups; ++g) {
      scales_[r * layout_.groups + g] = choose_scale(layout_, values + g * layout_.group,
                                                     layout_.diagonal.data() + g * layout_.group);
    }
  }

  // Chooses each code for the value plus what makes up for the errors of the codes before it.
  void choose_by_factor(size_t r) {
    const float* w = values_.data() + r * columns_;
    float *e = errors_.data() + r * columns_, *code = codes_.data() + r * columns_;
    std::vector<float> carried(columns_);
    for (size_t begin = 0; begin < columns_; begin += kBlockColumns) {
      const size_t end = std::min(columns_, begin + kBlockColumns);
      for (size_t q = begin; q < end; ++q) {
        const float s = scale(r, q);
        code[q] = layout_.code((w[q] + carried[q]) / s);
        e[q] = w[q] - code[q] * s;
        add_multiple(e[q], factor_.ratios.data() + q * columns_ + q + 1, carried.data() + q + 1,
                     end - q - 1);
      }
      add_multiples(e + begin, factor_.ratios.data() + begin * columns_ + end, columns_,
                    end - begin, carried.data() + end, columns_ - end);
    }
  }

  void compute_errors(size_t r) {
    for (size_t q = 0; q < columns_; ++q) {
      const size_t at = r * columns_ + q;
      errors_[at] = values_[at] - codes_[at] * scale(r, q);
    }
  }
  // Computes the errors e and the gradients e H of all rows.
  void gradients(ThreadPool& pool) {
    gradients_.resize(errors_.size());
    pool.parallel_for(rows_, [&](size_t r) { compute_errors(r); });
    kernels::linear(DType::kF32, errors_.data(), factor_.matrix.data(), gradients_.data(),
                    static_cast<int64_t>(rows_), static_cast<int64_t>(columns_),
                    static_cast<int64_t>(columns_), pool);
  }
  std::vector<double> costs(ThreadPool& pool) {
    gradients(pool);
    std::vector<double> costs(rows_);
    for (size_t r = 0; r < rows_; ++r) {
      for (size_t q = 0; q < columns_; ++q) {
        const size_t at = r * columns_ + q;
        costs[r] += double{errors_[at]} * double{gradients_[at]};
      }
    }
    return costs;
  }

  // Changes the scale of each group to the one of least cost while all else stays.
  void improve_scales(size_t r) {
    const float* code = codes_.data() + r * columns_;
    float *e = errors_.data() + r * columns_, *gradient = gradients_.data() + r * columns_;
    std::vector<size_t> members;
    for (size_t g = 0; g < layout_.groups; ++g) {
      members.clear();
      for (size_t i = g * layout_.group; i < (g + 1) * layout_.group; ++i) {
        members.push_back(layout_.position[i]);
      }
      double slope = 0, curvature = 0;
      for (const size_t q : members) {
        slope += double{code[q]} * double{gradient[q]};
        const float* h = factor_.matrix.data() + q * columns_;
        double sum = 0;
        for (const size_t p : members) sum += double{h[p]} * double{code[p]};
        curvature += double{code[q]} * sum;
      }
      if (!(curvature > 0)) continue;
      float& s = scales_[r * layout_.groups + g];
      const float changed = layout_.stored(static_cast<float>(double{s} + slope / curvature));
      const double step = double{changed} - double{s};
      // The cost changes by step^2 curvature - 2 step slope.
      if (!(changed >= graph::kSmallestScale) || !(step * (step * curvature - 2 * slope) < 0))
        continue;
      s = changed;
      for (const size_t q : members) {
        const auto change = static_cast<float>(-step * double{code[q]});
        e[q] += change;
        add_multiple(change, factor_.matrix.data() + q * columns_, gradient, columns_);
      }
    }
  }

  // Changes each code to the one of least cost while all else stays.
  void improve_codes(size_t r) {
    float* code = codes_.data() + r * columns_;
    float *e = errors_.data() + r * columns_, *gradient = gradients_.data() + r * columns_;
    for (size_t q = 0; q < columns_; ++q) {
      const float* h = factor_.matrix.data() + q * columns_;
      if (!(h[q] > 0)) continue;
      const float s = scale(r, q);
      const float best = layout_.code(code[q] + gradient[q] / h[q] / s);
      if (best == code[q]) continue;
      const float change = (code[q] - best) * s;
      code[q] = best;
      e[q] += change;
      add_multiple(change, h, gradient, columns_);
    }
  }

  void take(std::span<const std::byte> codes, std::span<const std::byte> scales) {
    std::vector<float> multiples(columns_);
    const std::vector<float> ones(layout_.groups, 1.0f);
    const auto code_bytes = columns_ * static_cast<size_t>(layout_.scheme.bits) / 8;
    for (size_t r = 0; r < rows_; ++r) {
      graph::decode_groups(layout_.scheme.bits, layout_.scheme.order, codes.data() + r * code_bytes,
                           ones.data(), layout_.group, layout_.groups, multiples.data());
      for (size_t q = 0; q < columns_; ++q) {
        codes_[r * columns_ + q] = multiples[static_cast<size_t>(factor_.order[q])];
      }
    }
    to_f32(layout_.scheme.scale_dtype, scales.data(), scales_.data(), scales_.size());
  }

  const Layout& layout_;
  const Factor& factor_;
  const size_t columns_, rows_;
  std::vector<float> values_, errors_, gradients_, codes_;
  std::vector<float> scales_;  // [rows, groups]
};

}  // namespace

ChosenRows choose_codes(const graph::QuantizationScheme& scheme, std::span<const float> values,
                        const Factor& factor, ThreadPool& pool) {
  const Layout layout(scheme, factor);
  const size_t rows = values.size() / layout.columns;
  const auto columns = static_cast<int64_t>(layout.columns);
  const uint64_t code_bytes = scheme.code_bytes(columns), scale_bytes = scheme.scale_bytes(columns);
  ChosenRows chosen;
  chosen.codes.resize(rows * code_bytes);
  chosen.scales.resize(rows * scale_bytes);
  for (size_t first = 0; first < rows; first += kTileRows) {
    const size_t count = std::min(kTileRows, rows - first);
    const auto part = values.subspan(first * layout.columns, count * layout.columns);
    const auto codes = std::span(chosen.codes).subspan(first * code_bytes, count * code_bytes);
    const auto scales = std::span(chosen.scales).subspan(first * scale_bytes, count * scale_bytes);
    Tile tile(layout, factor, part);
    tile.choose(part, pool);
    graph::quantize_rows(scheme, part, columns, codes, scales);
    tile.compare(codes, scales, pool, chosen);
    tile.store(codes, scales);
  }
  return chosen;
}

double nearest_error(const graph::QuantizationScheme& scheme, std::span<const float> values,
                     const Factor& factor, ThreadPool& pool) {
  const Layout layout(scheme, factor);
  const size_t rows = values.size() / layout.columns;
  const auto columns = static_cast<int64_t>(layout.columns);
  double error = 0;
  for (size_t first = 0; first < rows; first += kTileRows) {
    const size_t count = std::min(kTileRows, rows - first);
    const auto part = values.subspan(first * layout.columns, count * layout.columns);
    std::vector<std::byte> codes(count * scheme.code_bytes(columns));
    std::vector<std::byte> scales(count * scheme.scale_bytes(columns));
    graph::quantize_rows(scheme, part, columns, codes, scales);
    error += Tile(layout, factor, part).error_of(codes, scales, pool);
  }
  return error;
}

}  // namespace ferry::calibration
