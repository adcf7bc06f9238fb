// The part of a call of attention that one task computes: its memory, and which keys its queries
// see, as rows of f32.

// clang-format off
#if defined(FERRY_COMPUTE_KEYS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FERRY_COMPUTE_KEYS_INL_H_
#undef FERRY_COMPUTE_KEYS_INL_H_
#else
#define FERRY_COMPUTE_KEYS_INL_H_
#endif
// clang-format on

#include "kernels/compute_cache_codes-inl.h"
#include "kernels/compute_weighted-inl.h"
#include "kernels/seen_columns.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::kernels {
namespace HWY_NAMESPACE {

constexpr float kMinusInfinity = -__builtin_inff();

// Computes a block of queries of all heads that share a kv head, over one block of keys.
struct Attention {
  const SdpaArgs& args;
  size_t batch, kv_head;
  size_t first, count;  // queries
  float* query;         // (count * group, padded_dim)
  float* sums;          // (count * group, padded_dim), weighted by e^(score - top)
  float* scores;        // (count * group, kKeyBlock)
  float* top;           // (count * group), largest score of the keys so far
  float* total;         // (count * group), sum of the weights so far

  // Returns the number of keys that query i of the block sees.
  size_t seen(size_t i) const { return args.seen(first + i + 1); }
  // Returns the row of a key, counted in rows of one head.
  size_t row(size_t key) const { return (batch * args.context + key) * args.kv_heads + kv_head; }
  // Returns the offset of query i for head 0 of the group. The heads of a group are adjacent.
  size_t query_offset(size_t i) const {
    return (((batch * args.t) + first + i) * args.heads + kv_head * args.group()) * args.dim;
  }
};

Attention attention(const SdpaArgs& args, const SdpaTask& task, size_t head) {
  const size_t first = task.block * args.block, rows = args.rows();
  const size_t count = args.t - first < args.block ? args.t - first : args.block;
  float* const query = task.query + (head - task.begin) * args.query_values();
  float* const sums = task.sums + (head - task.begin) * task.sums_stride;
  float* const scores = sums + rows * args.padded_dim();
  float* const top = scores + rows * kKeyBlock;
  const size_t batch = head / args.kv_heads;
  return {args, batch, head % args.kv_heads, first, count, query, sums, scores, top, top + rows};
}

// Rows of a cache as f32.
struct KeyRows {
  const float* at;
  size_t stride;
};

template <class T>
KeyRows widened(const Attention& a, const StoredRows& cache, size_t key, size_t n, float* tile) {
  const size_t dim = a.args.dim;
  for (size_t j = 0; j < n; ++j) {
    const size_t row = a.row(key + j);
    Stored<T> from{static_cast<const T*>(cache.at) + row * dim, 1.0f, 0};
    if constexpr (std::is_integral_v<T>) {
      from.scale = cache.scales[row];
      from.zero_point = cache.zero_points[row];
    }
    widen_stored(from, dim, tile + j * dim);
  }
  return {tile, dim};
}

KeyRows coded_rows(const Attention& a, const CacheCodes& codes, size_t key, size_t n, float* tile) {
  widen_rows(codes, codes.row(a.kv_head, key), n, tile);
  return {tile, codes.dim};
}

// Returns n keys from `key` on, in the cache's memory or converted into `tile`.
KeyRows key_rows(const Attention& a, const StoredRows& cache, size_t key, size_t n, float* tile) {
  if (cache.codes != nullptr) return coded_rows(a, *cache.codes, key, n, tile);
  switch (cache.dtype) {
    case DType::kI8:
      return widened<int8_t>(a, cache, key, n, tile);
    case DType::kF16:
      return widened<F16>(a, cache, key, n, tile);
    case DType::kBF16:
      return widened<BF16>(a, cache, key, n, tile);
    default: {
      const auto* rows = static_cast<const float*>(cache.at);
      return {rows + a.row(key) * a.args.dim, a.args.kv_heads * a.args.dim};
    }
  }
}

// Calls f(j, n, rows) for keys [key + begin, key + end), as many at a time as fit the tile.
template <class F>
HWY_INLINE void for_key_rows(const Attention& a, const StoredRows& cache, size_t key, size_t begin,
                             size_t end, const F& f) {
  HWY_ALIGN float tile[kMaxStoredDim];
  const size_t most = cache.dtype == DType::kF32 ? kKeyBlock : size_t(kMaxStoredDim) / a.args.dim;
  for (size_t j = begin; j < end; j += most) {
    const size_t n = j + most < end ? most : end - j;
    f(j, n, key_rows(a, cache, key + j, n, tile));
  }
}

// Fetches the rows of keys [key + begin, key + end), which are read soon. The processor does not do
// it by itself, because the rows of a head are short and far apart.
HWY_INLINE void fetch_rows(const Attention& a, const StoredRows& cache, size_t key, size_t begin,
                           size_t end) {
  if (cache.codes != nullptr) return;  // the rows of a head follow each other
  const size_t bytes = a.args.dim * static_cast<size_t>(dtype_bytes(cache.dtype));
  const auto* rows = static_cast<const char*>(cache.at);
  for (size_t j = begin; j < end; ++j) {
    const char* const row = rows + a.row(key + j) * bytes;
    for (size_t i = 0; i < bytes; i += 64) hwy::Prefetch(row + i);
  }
}

bool all_masked(const Attention& a, size_t key, size_t n) {
  for (size_t i = 0; i < a.count; ++i) {
    const float* mask = a.args.mask + (a.first + i) * a.args.context + key;
    for (size_t j = 0; j < n; ++j) {
      if (mask[j] != kMinusInfinity) return false;
    }
  }
  return true;
}

// Returns whether some value of a mask is above `least`, or is NaN.
HWY_INLINE bool any_above(const float* mask, size_t n, float least) {
  const F32 d;
  const VF32 limit = hn::Set(d, least);
  size_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    if (!hn::AllTrue(d, hn::Le(load_f32(d, mask + j), limit))) return true;
  }
  for (; j < n; ++j) {
    if (!(mask[j] <= least)) return true;
  }
  return false;
}

bool shows(const Attention& a, size_t begin, size_t end) {
  for (size_t i = 0; i < a.count; ++i) {
    const float* mask = a.args.mask + (a.first + i) * a.args.context;
    if (any_above(mask + begin, end - begin, -kHidden)) return true;
  }
  return false;
}

// Returns the range without which every sum has the same bits: the weights of hidden keys are 0 in
// a row where the mask does not lower some key.
SeenKeys seen_keys(const Attention& a) {
  constexpr float kLowered = -__FLT_DENORM_MIN__;
  SeenKeys seen{0, a.args.context};
  if (a.args.mask == nullptr) return seen;
  while (seen.begin + kMaxLanes < seen.end && !shows(a, seen.begin, seen.begin + kMaxLanes)) {
    seen.begin += kMaxLanes;
  }
  while (seen.end > seen.begin + kMaxLanes && !shows(a, seen.end - kMaxLanes, seen.end)) {
    seen.end -= kMaxLanes;
  }
  for (size_t i = 0; i < a.count; ++i) {
    const float* mask = a.args.mask + (a.first + i) * a.args.context;
    if (!any_above(mask + seen.begin, seen.end - seen.begin, kLowered)) return {0, a.args.context};
  }
  return seen;
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
