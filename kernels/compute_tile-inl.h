// Tiles of products of rows, for linear and attention. Every sum is made in one order: vector lane
// l takes k = l, l + lanes, l + 2 lanes, ... in turn, then sum4 adds the lanes.

// clang-format off
#if defined(FERRY_COMPUTE_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FERRY_COMPUTE_TILE_INL_H_
#undef FERRY_COMPUTE_TILE_INL_H_
#else
#define FERRY_COMPUTE_TILE_INL_H_
#endif
// clang-format on

#include "kernels/compute_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::kernels {
namespace HWY_NAMESPACE {

// The tile of accumulators fits the registers. Two rows of x have kPairCols columns.
#if HWY_TARGET == HWY_SCALAR
constexpr size_t kTileRows = 2, kTileCols = 4, kPairCols = 4;
#elif HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON
constexpr size_t kTileRows = 4, kTileCols = 6, kPairCols = 8;
#else
constexpr size_t kTileRows = 4, kTileCols = 3, kPairCols = 4;
#endif
static_assert(kTileCols <= kMaxTileCols);
// A single row of x is multiplied with this many rows of weights at a time.
constexpr size_t kBands = 4;

// Computes acc[i * kN + j] += x_i * w_j over one vector.
template <size_t kM, size_t kN, class W>
HWY_INLINE void step(const float* x, size_t x_stride, const W* w, size_t w_stride,
                     VF32 (&acc)[kM * kN]) {
  const F32 d;
  VF32 wide[kN];
  for (size_t j = 0; j < kN; ++j) wide[j] = load_f32(d, w + j * w_stride);
  for (size_t i = 0; i < kM; ++i) {
    const VF32 row = load_f32(d, x + i * x_stride);
    for (size_t j = 0; j < kN; ++j) acc[i * kN + j] = hn::MulAdd(row, wide[j], acc[i * kN + j]);
  }
}

// Selects the memory that a product fetches while it computes.
enum class Fetch {
  kNothing,
  kNextRows,  // the rows behind those that it reads
  kInBands,   // the bytes at distance RowProducts::ahead in each band
};

// Does the steps over all of k. w is not read past k, x is padded.
template <size_t kM, size_t kN, Fetch kFetch, class W>
HWY_INLINE void steps(const float* x, size_t x_stride, const W* w, size_t w_stride, size_t k,
                      FetchDistance ahead, VF32 (&acc)[kM * kN]) {
  const size_t whole = k / kLanes * kLanes;
  size_t c = 0;
  if constexpr (kFetch != Fetch::kNothing) {
    constexpr size_t kLine = 64 / sizeof(W);
    for (; c + kLine <= whole; c += kLine) {
      for (size_t j = 0; j < kN; ++j) {
        if constexpr (kFetch == Fetch::kNextRows) {
          hwy::Prefetch(w + (j + kN) * w_stride + c);
        } else {
          ahead.fetch(w + j * w_stride + c);
        }
      }
      for (size_t s = c; s < c + kLine; s += kLanes) {
        step<kM, kN>(x + s, x_stride, w + s, w_stride, acc);
      }
    }
  }
  for (; c < whole; c += kLanes) step<kM, kN>(x + c, x_stride, w + c, w_stride, acc);
  if (whole == k) return;
  W rest[kN * kLanes] = {};
  for (size_t j = 0; j < kN; ++j) {
    std::memcpy(&rest[j * kLanes], w + j * w_stride + whole, (k - whole) * sizeof(W));
  }
  step<kM, kN>(x + whole, x_stride, rest, kLanes, acc);
}

// The loop is unrolled by name, because GCC 12 otherwise clears memory and loads it.
template <size_t kCount>
HWY_INLINE void clear(VF32 (&acc)[kCount]) {
#pragma GCC unroll 24
  for (size_t i = 0; i < kCount; ++i) acc[i] = hn::Zero(F32());
}

// This is recursion and no loop, because GCC keeps an array in registers only if every index is
// constant before it optimises loops.
template <size_t kFrom, size_t kCount>
HWY_INLINE void sum_lanes(const VF32 (&acc)[kCount], float* sums) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (kFrom + 16 <= kCount) {
    const auto lanes = [&](auto at) HWY_ATTR {
      constexpr size_t i = kFrom + decltype(at)::value;
      return fold_lanes(acc[i], acc[i + 1], acc[i + 2], acc[i + 3]);
    };
    sum16(lanes(std::integral_constant<size_t, 0>()), lanes(std::integral_constant<size_t, 4>()),
          lanes(std::integral_constant<size_t, 8>()), lanes(std::integral_constant<size_t, 12>()),
          sums + kFrom);
    return sum_lanes<kFrom + 16>(acc, sums);
  }
#endif
  if constexpr (kFrom < kCount) {
    constexpr size_t k1 = kFrom + 1 < kCount ? kFrom + 1 : kFrom;
    constexpr size_t k2 = kFrom + 2 < kCount ? kFrom + 2 : kFrom;
    constexpr size_t k3 = kFrom + 3 < kCount ? kFrom + 3 : kFrom;
    sum4(acc[kFrom], acc[k1], acc[k2], acc[k3], sums + kFrom);
    sum_lanes<kFrom + 4>(acc, sums);
  }
}

// Computes out[i] as the sum of the lanes of acc[i], rounded to T. `out` holds a multiple of
// kMaxLanes values.
template <size_t kCount, class T>
HWY_INLINE void finish(const VF32 (&acc)[kCount], T* out) {
  const F32 d;
  // Sums that are loaded right after shorter pieces of them are stored would have to wait.
  if constexpr (std::is_same_v<T, float>) return sum_lanes<0>(acc, out);
  HWY_ALIGN float sums[round_up(kCount, kMaxLanes)];
  sum_lanes<0>(acc, sums);
  for (size_t i = 0; i < kCount; i += kLanes) store_f32(d, hn::Load(d, sums + i), out + i);
}

// Computes columns j, j + apart, ..., j + (kN - 1) * apart of out, rows [i, i + kM).
template <size_t kM, size_t kN, class T, Fetch kFetch>
HWY_INLINE void product_tile(const RowProducts& p, size_t i, size_t j, size_t apart) {
  VF32 acc[kM * kN];
  clear(acc);
  steps<kM, kN, kFetch>(p.x + i * p.x_stride, p.x_stride,
                        static_cast<const T*>(p.w) + j * p.w_stride, apart * p.w_stride, p.k,
                        p.ahead, acc);
  T sums[round_up(kM * kN, kMaxLanes)];
  finish(acc, sums);
  for (size_t r = 0; r < kM; ++r) {
    T* out = static_cast<T*>(p.out) + (i + r) * p.out_stride + j;
    for (size_t c = 0; c < kN; ++c) out[c * apart] = sums[r * kN + c];
  }
}

// Computes the columns of product_tile() for rows [i, p.m), of which there are at most kM.
template <size_t kM, size_t kN, class T, Fetch kFetch>
HWY_INLINE void product_rest(const RowProducts& p, size_t i, size_t j, size_t apart) {
  if constexpr (kM > 0) {
    if (p.m - i == kM) return product_tile<kM, kN, T, kFetch>(p, i, j, apart);
    product_rest<kM - 1, kN, T, kFetch>(p, i, j, apart);
  }
}

// Computes the columns of product_tile() for all rows. Only the first tile fetches.
template <size_t kM, size_t kN, class T, Fetch kFetch>
HWY_INLINE void product_columns(const RowProducts& p, size_t j, size_t apart) {
  size_t i = 0;
  if constexpr (kFetch != Fetch::kNothing) {
    if (p.m < kM) return product_rest<kM - 1, kN, T, kFetch>(p, 0, j, apart);
    product_tile<kM, kN, T, kFetch>(p, 0, j, apart), i = kM;
  }
  for (; i + kM <= p.m; i += kM) product_tile<kM, kN, T, Fetch::kNothing>(p, i, j, apart);
  product_rest<kM - 1, kN, T, Fetch::kNothing>(p, i, j, apart);
}

// Computes columns of adjacent rows of w, kN at a time. Returns the first column that is left.
template <size_t kM, size_t kN, class T>
HWY_INLINE size_t product_range(const RowProducts& p, size_t begin, size_t end) {
  size_t j = begin;
  for (; j + 2 * kN <= end; j += kN) product_columns<kM, kN, T, Fetch::kNextRows>(p, j, 1);
  for (; j + kN <= end; j += kN) product_columns<kM, kN, T, Fetch::kNothing>(p, j, 1);
  return j;
}

// Computes the columns of product_range(), but the kN rows are the next rows of kN bands of the
// range. So memory sees kN streams, each of which continues without a gap from one row to the next,
// and the processor fetches them ahead.
template <size_t kM, size_t kN, class T>
HWY_INLINE size_t product_bands(const RowProducts& p, size_t begin, size_t end) {
  const size_t band = (end - begin) / kN;
  for (size_t j = begin; j < begin + band; ++j) {
    if (p.ahead.bytes > 0) {
      product_columns<kM, kN, T, Fetch::kInBands>(p, j, band);
    } else {
      product_columns<kM, kN, T, Fetch::kNothing>(p, j, band);
    }
  }
  return begin + band * kN;
}

// Computes columns [begin, end) of out if the rows of w are short or not adjacent.
template <class T>
HWY_NOINLINE void products(const RowProducts& p, size_t begin, size_t end) {
  const size_t j = p.m == 1   ? product_range<1, 8, T>(p, begin, end)
                   : p.m == 2 ? product_range<2, kPairCols, T>(p, begin, end)
                   : p.m == 3 ? product_range<3, kTileCols, T>(p, begin, end)
                              : product_range<kTileRows, kTileCols, T>(p, begin, end);
  product_range<1, 1, T>(p, j, end);
}

// Computes the columns of product_bands(). Returns the first column that is left.
template <class T>
HWY_INLINE size_t most_bands(const RowProducts& p, size_t begin, size_t end) {
  if (p.m == 1) return product_bands<1, kBands, T>(p, begin, end);
  if (p.m == 2 && kTileRows > 2) return product_bands<2, kBands, T>(p, begin, end);
  if (p.m == 3) return product_bands<3, kTileCols, T>(p, begin, end);
  if constexpr (kTileRows * kTileCols == 24) {
    // Fewer passes read a row of w, which each of them widens. Without fetches memory is slower
    // with fewer streams.
    if (p.ahead.bytes == 0) return product_bands<kTileRows, kTileCols, T>(p, begin, end);
    if (p.m == 7 || p.m == 8) return product_bands<8, 3, T>(p, begin, end);
    if (p.m > kTileRows) return product_bands<6, 4, T>(p, begin, end);
  }
  return product_bands<kTileRows, kTileCols, T>(p, begin, end);
}

// Computes columns [begin, end) of out if w is one long piece of memory.
template <class T>
HWY_NOINLINE void banded_products(const RowProducts& p, size_t begin, size_t end) {
  product_bands<1, 1, T>(p, most_bands<T>(p, begin, end), end);
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
