// Weighted sums of rows, for attention and bmm: vectors along the rows, every sum in the order of
// j.

// clang-format off
#if defined(FERRY_COMPUTE_WEIGHTED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FERRY_COMPUTE_WEIGHTED_INL_H_
#undef FERRY_COMPUTE_WEIGHTED_INL_H_
#else
#define FERRY_COMPUTE_WEIGHTED_INL_H_
#endif
// clang-format on

#include "runner/kernels/compute_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::kernels {
namespace HWY_NAMESPACE {

// Accumulators that fit the registers beside what is loaded.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON
constexpr size_t kWeightedSums = 16;
#else
constexpr size_t kWeightedSums = 8;
#endif

// kM rows of sums, kV vectors from column c. kAhead: rows to come are fetched.
template <size_t kM, size_t kV, bool kAhead, class D>
HWY_INLINE void weighted_tile(D d, const WeightedSums& a, size_t i, size_t c) {
  constexpr size_t kWidth = hn::MaxLanes(D());
  hn::Vec<D> sums[kM * kV];
  float* out = a.out + i * a.out_stride + c;
  for (size_t r = 0; r < kM; ++r) {
    for (size_t v = 0; v < kV; ++v) {
      sums[r * kV + v] = load_f32(d, out + r * a.out_stride + v * kWidth);
    }
  }
  const float* weights = a.weights + i * a.weights_stride;
  const float* row = a.rows + c;
  for (size_t j = 0; j < a.count; ++j, row += a.rows_stride) {
    if constexpr (kAhead) {
      constexpr size_t kRows = 8;
      const float* next = row + (j + kRows < a.count ? kRows : 0) * a.rows_stride;
      for (size_t v = 0; v < kV * kWidth; v += 16) hwy::Prefetch(next + v);
    }
    hn::Vec<D> values[kV];
    for (size_t v = 0; v < kV; ++v) values[v] = load_f32(d, row + v * kWidth);
    for (size_t r = 0; r < kM; ++r) {
      const auto weight = hn::Set(d, weights[r * a.weights_stride + j]);
      for (size_t v = 0; v < kV; ++v) {
        sums[r * kV + v] = hn::MulAdd(weight, values[v], sums[r * kV + v]);
      }
    }
  }
  for (size_t r = 0; r < kM; ++r) {
    for (size_t v = 0; v < kV; ++v) {
      hn::StoreU(sums[r * kV + v], d, out + r * a.out_stride + v * kWidth);
    }
  }
}

// Rows [i, i + kM), all columns: as many vectors at a time as there are accumulators, then single
// vectors, then single lanes.
template <size_t kM, bool kAhead>
HWY_INLINE void weighted_rows(const WeightedSums& a, size_t i) {
  constexpr size_t kV = kWeightedSums / kM < 8 ? kWeightedSums / kM : 8;
  size_t c = 0;
  for (; c + kV * kLanes <= a.width; c += kV * kLanes) {
    weighted_tile<kM, kV, kAhead>(F32(), a, i, c);
  }
  for (; c + kLanes <= a.width; c += kLanes) weighted_tile<kM, 1, kAhead>(F32(), a, i, c);
  for (; c < a.width; ++c) weighted_tile<kM, 1, false>(F32x1(), a, i, c);
}

HWY_NOINLINE inline void weighted_sums(const WeightedSums& a) {
  if (a.count == 0) return;
  size_t i = 0;
  if (a.m < 4) {
    if (a.m >= 2) {
      weighted_rows<2, true>(a, 0);
      i = 2;
    } else if (a.m == 1) {
      weighted_rows<1, true>(a, 0);
      i = 1;
    }
  }
  for (; i + 4 <= a.m; i += 4) weighted_rows<4, false>(a, i);
  for (; i < a.m; ++i) weighted_rows<1, false>(a, i);
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
