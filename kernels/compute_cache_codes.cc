// Codes of keys and values.
#include <cmath>

#include "core/highway_targets.h"
// This include must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/compute_cache_codes.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "kernels/compute_cache_codes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::kernels {
namespace HWY_NAMESPACE {

// ---- turning rows. Every element is a sum or a difference of the same two numbers on every
// processor, in the same order.

// Adds and subtracts values that are `step` apart, less than a vector, in every vector of a row.
HWY_INLINE void turn_within(float* row, size_t dim, size_t step) {
  const F32 d;
  const hn::RebindToSigned<F32> d32;
  const auto lane = hn::Iota(d32, 0);
  const auto bit = hn::Set(d32, static_cast<int32_t>(step));
  const auto other = hn::IndicesFromVec(d, hn::Xor(lane, bit));
  const auto is_first = hn::RebindMask(d, hn::Eq(hn::And(lane, bit), hn::Zero(d32)));
  const VF32 sign = hn::IfThenElse(is_first, hn::Set(d, 1.0f), hn::Set(d, -1.0f));
  for (size_t i = 0; i < dim; i += kLanes) {
    const VF32 mine = load_f32(d, row + i);
    store_f32(d, hn::MulAdd(mine, sign, hn::TableLookupLanes(mine, other)), row + i);
  }
}

template <class D>
HWY_INLINE void turn_across(D d, float* row, size_t dim, size_t step) {
  for (size_t begin = 0; begin < dim; begin += 2 * step) {
    for (size_t i = begin; i < begin + step; i += hn::MaxLanes(d)) {
      const auto a = load_f32(d, row + i), b = load_f32(d, row + i + step);
      store_f32(d, hn::Add(a, b), row + i);
      store_f32(d, hn::Sub(a, b), row + i + step);
    }
  }
}

HWY_INLINE void turn(float* row, size_t dim) {
  const size_t block = CacheCodes{.dim = dim}.block();
  const bool whole = dim % kLanes == 0;
  for (size_t step = 1; step < block; step *= 2) {
    if (!whole) {
      turn_across(F32x1(), row, dim, step);
    } else if (step < kLanes) {
      turn_within(row, dim, step);
    } else {
      turn_across(F32(), row, dim, step);
    }
  }
  const float scale = 1.0f / std::sqrt(static_cast<float>(block));
  for (size_t i = 0; i < dim; ++i) row[i] *= scale;
}

void turn_task(size_t dim, size_t count, float* rows) {
  for (size_t i = 0; i < count; ++i) turn(rows + i * dim, dim);
}

// ---- storing

// The largest and the smallest value of a group; NaN for both if one is not finite.
struct Extremes {
  float most, least;
};

template <class D>
HWY_INLINE Extremes extremes(D d, const float* x, size_t n) {
  auto most = load_f32(d, x), least = most;
  auto finite = hn::IsFinite(most);
  for (size_t i = hn::MaxLanes(d); i < n; i += hn::MaxLanes(d)) {
    const auto v = load_f32(d, x + i);
    finite = hn::And(finite, hn::IsFinite(v));
    most = hn::Max(most, v);
    least = hn::Min(least, v);
  }
  if (!hn::AllTrue(d, finite)) return {__builtin_nanf(""), __builtin_nanf("")};
  if constexpr (hn::MaxLanes(D()) == 1) return {hn::GetLane(most), hn::GetLane(least)};
  return {hn::GetLane(hn::MaxOfLanes(d, most)), hn::GetLane(hn::MinOfLanes(d, least))};
}

// Writes the scale as f16, and returns what it reads as. NaN and infinities become NaN.
HWY_INLINE float store_scale(float scale, std::byte* to) {
  F16 half;
  store_f32(F32x1(), hn::Set(F32x1(), scale), &half);
  const bool finite = (half.bits & 0x7c00) != 0x7c00;
  if (!finite) half.bits = 0x7e00;
  std::memcpy(to, &half, sizeof half);
  return code_scale(to);
}

// Returns the codes of x / scale; 0 without a scale, or with NaN.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<int32_t, D>> codes_of(D d, const float* x, float scale, float least,
                                                    float most) {
  if (!(scale > 0 || scale < 0)) return hn::Zero(hn::Rebind<int32_t, D>());
  const auto steps = hn::Div(load_f32(d, x), hn::Set(d, scale));
  return hn::NearestInt(hn::Min(hn::Max(steps, hn::Set(d, least)), hn::Set(d, most)));
}

template <class D>
HWY_INLINE void store_group8(D d, const float* x, size_t n, std::byte* codes, std::byte* scale_at) {
  const Extremes e = extremes(d, x, n);
  const float scale = store_scale((e.most > -e.least ? e.most : -e.least) / 127.0f, scale_at);
  const hn::Rebind<int8_t, D> d8;
  auto* const to = reinterpret_cast<int8_t*>(codes);
  for (size_t i = 0; i < n; i += hn::MaxLanes(d)) {
    hn::StoreU(hn::DemoteTo(d8, codes_of(d, x + i, scale, -127.0f, 127.0f)), d8, to + i);
  }
}

template <class D>
HWY_INLINE void store_group4(D d, const float* x, size_t half, std::byte* codes,
                             std::byte* scale_at) {
  const Extremes e = extremes(d, x, 2 * half);
  const float scale = store_scale((e.most >= -e.least ? e.most : e.least) / -8.0f, scale_at);
  const hn::Rebind<uint8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  auto* const to = reinterpret_cast<uint8_t*>(codes);
  const auto middle = hn::Set(d32, 8);
  for (size_t i = 0; i < half; i += hn::MaxLanes(d)) {
    const auto low = hn::Add(codes_of(d, x + i, scale, -8.0f, 7.0f), middle);
    const auto high = hn::Add(codes_of(d, x + half + i, scale, -8.0f, 7.0f), middle);
    hn::StoreU(hn::DemoteTo(d8, hn::Or(low, hn::ShiftLeft<4>(high))), d8, to + i);
  }
}

void store_row_task(const CacheCodes& to, float* x, std::byte* row) {
  turn(x, to.dim);
  const size_t group = to.group(), half = group / 2;
  std::byte* const scales = row + to.code_bytes();
  for (size_t g = 0; g * group < to.dim; ++g, x += group) {
    std::byte* const scale = scales + g * sizeof(uint16_t);
    if (to.bits == 8) {
      std::byte* const codes = row + g * group;
      group % kLanes == 0 ? store_group8(F32(), x, group, codes, scale)
                          : store_group8(F32x1(), x, group, codes, scale);
    } else {
      std::byte* const codes = row + g * half;
      half % kLanes == 0 ? store_group4(F32(), x, half, codes, scale)
                         : store_group4(F32x1(), x, half, codes, scale);
    }
  }
}

void load_row_task(const CacheCodes& from, const std::byte* row, float* to) {
  widen_rows(from, row, 1, to);
  turn(to, from.dim);
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "kernels/compute_scratch.h"
#include "kernels/kernel.h"

namespace ferry::kernels {
namespace {

HWY_EXPORT(turn_task);
HWY_EXPORT(store_row_task);
HWY_EXPORT(load_row_task);

constexpr int64_t kRowsOfTask = 32;

}  // namespace

void turn_rows(size_t dim, size_t count, float* rows, ThreadPool& pool) {
  for_pieces(pool, static_cast<int64_t>(count), kRowsOfTask, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(turn_task)
    (dim, static_cast<size_t>(end - begin), rows + static_cast<size_t>(begin) * dim);
  });
}

void store_codes(const CacheCodes& to, size_t position, DType dtype, const void* rows, size_t count,
                 ThreadPool& pool) {
  const auto values = static_cast<int64_t>(to.dim);
  const auto* const bytes = static_cast<const std::byte*>(rows);
  const size_t row_bytes = to.dim * static_cast<size_t>(dtype_bytes(dtype));
  for_pieces(pool, static_cast<int64_t>(count * to.heads), kRowsOfTask,
             [&](int64_t begin, int64_t end) {
               const Scratch x(to.dim);
               for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
                 load(dtype, bytes + i * row_bytes, x.data(), values);
                 HWY_DYNAMIC_DISPATCH(store_row_task)
                 (to, x.data(), to.row(i % to.heads, position + i / to.heads));
               }
             });
}

void load_codes(const CacheCodes& from, size_t position, size_t count, float* rows,
                ThreadPool& pool) {
  for_pieces(pool, static_cast<int64_t>(count * from.heads), kRowsOfTask,
             [&](int64_t begin, int64_t end) {
               for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
                 HWY_DYNAMIC_DISPATCH(load_row_task)
                 (from, from.row(i % from.heads, position + i / from.heads), rows + i * from.dim);
               }
             });
}

}  // namespace ferry::kernels
#endif  // HWY_ONCE
