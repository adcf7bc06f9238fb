// Weighted sums of rows, for attention and bmm. Vectors run along the rows, and every sum has the
// order of j.

// clang-format off
#if defined(FERRY_COMPUTE_WEIGHTED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FERRY_COMPUTE_WEIGHTED_INL_H_
#undef FERRY_COMPUTE_WEIGHTED_INL_H_
#else
#define FERRY_COMPUTE_WEIGHTED_INL_H_
#endif
// clang-format on

#include "kernels/compute_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::kernels {
namespace HWY_NAMESPACE {

// Accumulators fit the registers beside the loaded values.
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON
constexpr size_t kWeightedSums = 16, kDeepRows = 4;
#else
constexpr size_t kWeightedSums = 8, kDeepRows = 2;
#endif

// Computes kM rows of sums for kV vectors from column c. With kAhead, later rows are fetched.
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

// Computes columns from `c` on for rows [i, i + kM): kV vectors at a time, then half as many, and
// at last single lanes.
template <size_t kM, size_t kV, bool kAhead>
HWY_INLINE void weighted_columns(const WeightedSums& a, size_t i, size_t c) {
  for (; c + kV * kLanes <= a.width; c += kV * kLanes) {
    weighted_tile<kM, kV, kAhead>(F32(), a, i, c);
  }
  if constexpr (kV > 1) {
    weighted_columns<kM, kV / 2, kAhead>(a, i, c);
  } else {
    for (; c < a.width; ++c) weighted_tile<kM, 1, false>(F32x1(), a, i, c);
  }
}

// Returns the largest power of two up to n, at most 8.
constexpr size_t vectors_of_tile(size_t n) { return n >= 8 ? 8 : n >= 4 ? 4 : n >= 2 ? 2 : 1; }

template <size_t kM, bool kAhead>
HWY_INLINE void weighted_rows(const WeightedSums& a, size_t i) {
  weighted_columns<kM, vectors_of_tile(kWeightedSums / kM), kAhead>(a, i, 0);
}

// Computes rows [i, a.m), of which there are fewer than 4.
template <bool kAhead>
HWY_INLINE void weighted_rest(const WeightedSums& a, size_t i) {
  switch (a.m - i) {
    case 3:
      return weighted_rows<3, kAhead>(a, i);
    case 2:
      return weighted_rows<2, kAhead>(a, i);
    case 1:
      return weighted_rows<1, kAhead>(a, i);
  }
}

HWY_NOINLINE inline void weighted_sums(const WeightedSums& a) {
  if (a.count == 0) return;
  if (a.m < 4) return weighted_rest<true>(a, 0);
  size_t i = 0;
  for (; i + 4 <= a.m; i += 4) weighted_rows<4, false>(a, i);
  weighted_rest<false>(a, i);
}

// ---- the same sums over rows that are read once from one end to the other

// Values in their stored dtype.
template <class T>
struct Stored {
  const T* at;
  float scale;         // scale of codes
  int32_t zero_point;  // zero point of codes
};

template <class D, class T>
HWY_INLINE hn::Vec<D> load_stored(D d, const Stored<T>& from, size_t i) {
  if constexpr (std::is_integral_v<T>) {
    const hn::Rebind<T, D> codes;
    const hn::Rebind<int32_t, D> whole;
    const auto code = hn::PromoteTo(whole, load_bits(codes, from.at + i));
    const auto steps = hn::Sub(code, hn::Set(whole, from.zero_point));
    return hn::Mul(hn::ConvertTo(d, steps), hn::Set(d, from.scale));
  } else {
    return load_f32(d, from.at + i);
  }
}

// Converts n values to f32.
template <class T>
HWY_INLINE void widen_stored(const Stored<T>& from, size_t n, float* to) {
  const F32 d;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_f32(d, load_stored(d, from, i), to + i);
  for (; i < n; ++i) store_f32(F32x1(), load_stored(F32x1(), from, i), to + i);
}

// Computes columns from `c` on as far as whole vectors reach: out_i += the sum of kDepth rows from
// row j.
template <size_t kM, size_t kDepth, class D, class T>
HWY_INLINE size_t deep_columns(D d, const Stored<T>& rows, const WeightedSums& a, size_t i,
                               size_t j, size_t c) {
  constexpr size_t kWidth = hn::MaxLanes(D());
  hn::Vec<D> weights[kM * kDepth];
  for (size_t r = 0; r < kM; ++r) {
    for (size_t q = 0; q < kDepth; ++q) {
      weights[r * kDepth + q] = hn::Set(d, a.weights[(i + r) * a.weights_stride + j + q]);
    }
  }
  const Stored<T> from{rows.at + j * a.rows_stride, rows.scale, rows.zero_point};
  float* out = a.out + i * a.out_stride;
  // The processor fetches within a row by itself, but rows of a cache are far apart and short.
  const size_t ahead = i == 0 && j + 3 * kDepth <= a.count ? 2 * kDepth * a.rows_stride : 0;
  for (; c + kWidth <= a.width; c += kWidth) {
    hn::Vec<D> sums[kM];
    for (size_t r = 0; r < kM; ++r) sums[r] = load_f32(d, out + r * a.out_stride + c);
    for (size_t q = 0; q < kDepth; ++q) {
      if (ahead > 0) hwy::Prefetch(from.at + q * a.rows_stride + ahead + c);
      const auto value = load_stored(d, from, q * a.rows_stride + c);
      for (size_t r = 0; r < kM; ++r) {
        sums[r] = hn::MulAdd(weights[r * kDepth + q], value, sums[r]);
      }
    }
    for (size_t r = 0; r < kM; ++r) store_f32(d, sums[r], out + r * a.out_stride + c);
  }
  return c;
}

template <size_t kM, size_t kDepth, class T>
HWY_INLINE void deep_rows(const Stored<T>& rows, const WeightedSums& a, size_t i, size_t j) {
  const size_t c = deep_columns<kM, kDepth>(F32(), rows, a, i, j, 0);
  deep_columns<kM, kDepth>(F32x1(), rows, a, i, j, c);
}

// Adds kDepth rows of the matrix to all rows of the result, while they are in the cache.
template <size_t kDepth, class T>
HWY_INLINE void deep_step(const Stored<T>& rows, const WeightedSums& a, size_t j) {
  size_t i = 0;
  if constexpr (kDeepRows == 4) {
    for (; i + 4 <= a.m; i += 4) deep_rows<4, kDepth>(rows, a, i, j);
    if (i + 3 == a.m) return deep_rows<3, kDepth>(rows, a, i, j);
  }
  for (; i + 2 <= a.m; i += 2) deep_rows<2, kDepth>(rows, a, i, j);
  if (i < a.m) deep_rows<1, kDepth>(rows, a, i, j);
}

// Computes out_i += sum_j weights[i, j] * rows_j. a.rows is not used.
template <class T>
void stream_sums(const Stored<T>& rows, const WeightedSums& a) {
  size_t j = 0;
  for (; j + 4 <= a.count; j += 4) deep_step<4>(rows, a, j);
  for (; j < a.count; ++j) deep_step<1>(rows, a, j);
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
