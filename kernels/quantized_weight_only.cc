// Products of f32 activations with codes. Sums have the order of compute_tile-inl.h. Weights are
// code * scale, rounded to f32; the scale of a whole row is multiplied with the row's sum instead.
#include "core/highway_targets.h"
// This include must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/quantized_weight_only.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "kernels/compute_tile-inl.h"
#include "kernels/quantized_kernels.h"

#ifndef FERRY_QUANTIZED_WEIGHT_ONLY_ARGS
#define FERRY_QUANTIZED_WEIGHT_ONLY_ARGS
namespace ferry::kernels {

// Rows of x are zero from matrix.columns to the next multiple of kMaxLanes.
struct WeightOnlyArgs {
  const float* x;
  size_t x_stride, m;
  const CodedMatrix* matrix;
  const float* bias;
  float* out;
};

// Returns whether all codes of a vector have one scale.
inline bool has_wide_groups(const CodedMatrix& m) {
  const Groups groups(m);
  return groups.count == 1 || groups.columns % kMaxLanes == 0;
}

// Returns the factor of the sum of a row.
inline float row_factor(const CodedMatrix& m, size_t n) {
  return Groups(m).count == 1 ? scale_at(m, n) : 1.0f;
}

}  // namespace ferry::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace ferry::kernels {
namespace HWY_NAMESPACE {

constexpr size_t kDirectCols = 4;
constexpr size_t kChunk = 64;
static_assert(kChunk % kMaxLanes == 0 && kTaskCols % kDirectCols == 0);

// Returns codes [k, k + count) of a row, in place or in `buffer`. Zeros follow up to a multiple of
// kMaxLanes.
HWY_INLINE const int8_t* codes_at(const CodedMatrix& m, const uint8_t* row, size_t k, size_t count,
                                  int8_t* buffer) {
  if (m.bits == 8 && count % kMaxLanes == 0) return reinterpret_cast<const int8_t*>(row) + k;
  std::memset(buffer, 0, kChunk);
  if (m.bits == 8) {
    std::memcpy(buffer, row + k, count);
    return buffer;
  }
  const uint8_t* pairs = row + k / 2;
  for (size_t i = 0; i < count / 2; ++i) {
    buffer[2 * i] = static_cast<int8_t>((pairs[i] & 15) - 8);
    buffer[2 * i + 1] = static_cast<int8_t>((pairs[i] >> 4) - 8);
  }
  return buffer;
}

HWY_INLINE VF32 code_lanes(const int8_t* codes) {
  const hn::Rebind<int32_t, F32> d32;
  const hn::Rebind<int8_t, F32> d8;
  return hn::ConvertTo(F32(), hn::PromoteTo(d32, load_bits(d8, codes)));
}

// Columns of out, which are kDirectCols rows of the matrix.
struct DirectRows {
  const uint8_t* codes[kDirectCols];
  size_t scales[kDirectCols];  // the index of the first scale of each row
};

// Adds products of columns [k, k + count), which have the given scales.
template <size_t kM, bool kScaled>
HWY_INLINE void direct_chunk(const WeightOnlyArgs& a, const DirectRows& rows, size_t k,
                             size_t count, const VF32 (&scales)[kDirectCols],
                             VF32 (&acc)[kM * kDirectCols]) {
  const F32 d;
  HWY_ALIGN int8_t buffers[kDirectCols][kChunk];
  const int8_t* codes[kDirectCols];
  for (size_t j = 0; j < kDirectCols; ++j) {
    codes[j] = codes_at(*a.matrix, rows.codes[j], k, count, buffers[j]);
  }
  for (size_t v = 0; v < count; v += kLanes) {
    for (size_t j = 0; j < kDirectCols; ++j) {
      VF32 w = code_lanes(codes[j] + v);
      if constexpr (kScaled) w = hn::Mul(w, scales[j]);
      for (size_t i = 0; i < kM; ++i) {
        const VF32 x = hn::LoadU(d, a.x + i * a.x_stride + k + v);
        acc[i * kDirectCols + j] = hn::MulAdd(x, w, acc[i * kDirectCols + j]);
      }
    }
  }
}

template <size_t kM, bool kScaled>
HWY_INLINE void direct_sums(const WeightOnlyArgs& a, const DirectRows& rows, float* sums) {
  const Groups groups(*a.matrix);
  VF32 acc[kM * kDirectCols], scales[kDirectCols];
  clear(acc);
  clear(scales);
  for (size_t g = 0; g < groups.count; ++g) {
    if constexpr (kScaled) {
      for (size_t j = 0; j < kDirectCols; ++j) {
        scales[j] = hn::Set(F32(), scale_at(*a.matrix, rows.scales[j] + g));
      }
    }
    for (size_t c = 0; c < groups.columns; c += kChunk) {
      const size_t count = groups.columns - c < kChunk ? groups.columns - c : kChunk;
      direct_chunk<kM, kScaled>(a, rows, g * groups.columns + c, count, scales, acc);
    }
  }
  finish(acc, sums);
}

// Multiplies rows [n, n + kDirectCols) of the matrix. The last row is repeated in place of missing
// rows.
template <size_t kM>
void direct_columns(const WeightOnlyArgs& a, size_t n) {
  const auto count = static_cast<size_t>(a.matrix->rows);
  const size_t groups = Groups(*a.matrix).count;
  DirectRows rows;
  for (size_t j = 0; j < kDirectCols; ++j) {
    const size_t row = n + j < count ? n + j : count - 1;
    rows.codes[j] = row_codes(*a.matrix, row);
    rows.scales[j] = row * groups;
  }
  float sums[round_up(kM * kDirectCols, kMaxLanes)];
  groups == 1 ? direct_sums<kM, false>(a, rows, sums) : direct_sums<kM, true>(a, rows, sums);
  for (size_t j = 0; j < kDirectCols && n + j < count; ++j) {
    for (size_t i = 0; i < kM; ++i) {
      a.out[i * count + n + j] = sums[i * kDirectCols + j] * row_factor(*a.matrix, n + j);
    }
  }
}

// Returns the index of weight k of column j in a tile. Vectors of the columns alternate.
constexpr size_t place_in_tile(size_t k, size_t j) {
  return k / kLanes * kLanes * kTileCols + j * kLanes + k % kLanes;
}

// Writes the weights of row `row` as column j of a tile.
void widen_codes(const CodedMatrix& m, size_t row, size_t j, float* tile) {
  const F32 d;
  const Groups groups(m);
  for (size_t g = 0; g < groups.count; ++g) {
    const VF32 scale = hn::Set(d, groups.count == 1 ? 1.0f : scale_at(m, row * groups.count + g));
    for (size_t c = 0; c < groups.columns; c += kChunk) {
      const size_t count = groups.columns - c < kChunk ? groups.columns - c : kChunk;
      const size_t k = g * groups.columns + c;
      HWY_ALIGN int8_t buffer[kChunk];
      const int8_t* codes = codes_at(m, row_codes(m, row), k, count, buffer);
      for (size_t v = 0; v < count; v += kLanes) {
        hn::StoreU(hn::Mul(code_lanes(codes + v), scale), d, tile + place_in_tile(k + v, j));
      }
    }
  }
}

// Writes column j of a tile for groups that begin inside a vector.
void widen_codes_one_by_one(const CodedMatrix& m, size_t row, size_t j, float* tile) {
  const Groups groups(m);
  const uint8_t* codes = row_codes(m, row);
  for (size_t k = 0; k < static_cast<size_t>(m.columns); ++k) {
    const int code =
        m.bits == 4 ? (codes[k / 2] >> (k % 2 * 4) & 15) - 8 : static_cast<int8_t>(codes[k]);
    tile[place_in_tile(k, j)] =
        static_cast<float>(code) * scale_at(m, row * groups.count + k / groups.columns);
  }
}

template <size_t kM>
HWY_INLINE void widened_tile(const WeightOnlyArgs& a, size_t i, size_t n, const float* tile) {
  VF32 acc[kM * kTileCols];
  clear(acc);
  const auto rows = static_cast<size_t>(a.matrix->rows);
  const float* x = a.x + i * a.x_stride;
  for (size_t k = 0; k < static_cast<size_t>(a.matrix->columns); k += kLanes) {
    step<kM, kTileCols>(x + k, a.x_stride, tile + k * kTileCols, kLanes, acc);
  }
  float sums[round_up(kM * kTileCols, kMaxLanes)];
  finish(acc, sums);
  for (size_t r = 0; r < kM; ++r) {
    for (size_t j = 0; j < kTileCols && n + j < rows; ++j) {
      a.out[(i + r) * rows + n + j] = sums[r * kTileCols + j] * row_factor(*a.matrix, n + j);
    }
  }
}

void widened_columns(const WeightOnlyArgs& a, size_t n, float* tile) {
  const auto rows = static_cast<size_t>(a.matrix->rows);
  const auto widen = has_wide_groups(*a.matrix) ? widen_codes : widen_codes_one_by_one;
  for (size_t j = 0; j < kTileCols; ++j) {
    widen(*a.matrix, n + j < rows ? n + j : rows - 1, j, tile);
  }
  size_t i = 0;
  for (; i + kTileRows <= a.m; i += kTileRows) widened_tile<kTileRows>(a, i, n, tile);
  for (; i < a.m; ++i) widened_tile<1>(a, i, n, tile);
}

// Computes rows [begin, end) of the matrix. `tile` holds kMaxTileCols rows of x, or is null for up
// to two rows of x.
void weight_only_task(const WeightOnlyArgs& a, size_t begin, size_t end, float* tile) {
  if (tile != nullptr) {
    for (size_t n = begin; n < end; n += kTileCols) widened_columns(a, n, tile);
    return;
  }
  for (size_t n = begin; n < end; n += kDirectCols) {
    if (a.m == 1) direct_columns<1>(a, n);
    if (a.m == 2) direct_columns<2>(a, n);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>
#include <array>
#include <functional>
#include <optional>

#include "kernels/compute_scratch.h"

namespace ferry::kernels {
namespace {

HWY_EXPORT(weight_only_task);

constexpr size_t kMaxDirectRows = 2;

void run_columns(const WeightOnlyArgs& a, size_t begin, size_t end) {
  if (a.m <= kMaxDirectRows && has_wide_groups(*a.matrix)) {
    HWY_DYNAMIC_DISPATCH(weight_only_task)(a, begin, end, nullptr);
  } else {
    const size_t size = kMaxTileCols * a.x_stride;
    const Scratch tile(size);
    std::fill_n(tile.data(), size, 0.0f);
    HWY_DYNAMIC_DISPATCH(weight_only_task)(a, begin, end, tile.data());
  }
  if (a.bias == nullptr) return;
  const auto rows = static_cast<size_t>(a.matrix->rows);
  for (size_t i = 0; i < a.m; ++i) {
    for (size_t n = begin; n < end; ++n) a.out[i * rows + n] += a.bias[n];
  }
}

void run_task(const WeightOnlyArgs& a, ThreadPool& pool) {
  const auto rows = static_cast<size_t>(a.matrix->rows);
  const size_t share = std::min<size_t>(96, rows / (4 * pool.size()) + 1);
  const size_t step = round_up(share, kTaskCols);
  const auto piece = [&](size_t index) {
    run_columns(a, index * step, std::min(rows, (index + 1) * step));
  };
  pool.parallel_for((rows + step - 1) / step, std::ref(piece));
}

// Copies rows and pads them with zeros.
void pad(const float* x, size_t m, size_t columns, size_t stride, float* copy) {
  for (size_t i = 0; i < m; ++i) {
    std::fill(std::copy_n(x + i * columns, columns, copy + i * stride), copy + (i + 1) * stride,
              0.0f);
  }
}

}  // namespace

void weight_only_linear(const float* x, int64_t m, int64_t, std::span<const LinearTask> tasks,
                        ThreadPool& pool) {
  for (const LinearTask& task : tasks) {
    weight_only_linear(x, m, task.matrix->matrix(), task.bias, task.out, pool);
  }
}

void weight_only_linear(const float* x, int64_t m, const CodedMatrix& matrix, const float* bias,
                        float* out, ThreadPool& pool) {
  if (m <= 0) return;
  const auto rows = static_cast<size_t>(m), width = static_cast<size_t>(matrix.columns);
  const size_t stride = round_up(width, kMaxLanes);
  std::optional<Scratch> copy;
  if (stride != width) {
    copy.emplace(rows * stride);
    pad(x, rows, width, stride, copy->data());
    x = copy->data();
  }
  run_task({x, stride, rows, &matrix, bias, out}, pool);
}

}  // namespace ferry::kernels
#endif  // HWY_ONCE
