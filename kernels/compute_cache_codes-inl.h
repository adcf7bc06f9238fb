// Rows of CacheCodes to f32.

// clang-format off
#if defined(FERRY_COMPUTE_CACHE_CODES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FERRY_COMPUTE_CACHE_CODES_INL_H_
#undef FERRY_COMPUTE_CACHE_CODES_INL_H_
#else
#define FERRY_COMPUTE_CACHE_CODES_INL_H_
#endif
// clang-format on

#include "kernels/cache_codes.h"
#include "kernels/compute_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::kernels {
namespace HWY_NAMESPACE {

HWY_INLINE float code_scale(const std::byte* at) {
  return hn::GetLane(load_f32(F32x1(), reinterpret_cast<const F16*>(at)));
}

// Computes the values of a group of n codes of 8 bits, whole vectors of them.
template <class D>
HWY_INLINE void widen_group8(D d, const std::byte* codes, float scale, size_t n, float* to) {
  const hn::Rebind<int8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  for (size_t i = 0; i < n; i += hn::MaxLanes(d)) {
    const auto code = hn::PromoteTo(d32, load_bits(d8, codes + i));
    store_f32(d, hn::Mul(hn::ConvertTo(d, code), hn::Set(d, scale)), to + i);
  }
}

// Computes the values of a group of 2 * half codes of 4 bits. A vector of 16 lanes holds the
// values of all codes.
template <class D>
HWY_INLINE void widen_group4(D d, const std::byte* codes, float scale, size_t half, float* to) {
  const hn::Rebind<uint8_t, D> d8;
  const hn::Rebind<int32_t, D> d32;
  constexpr bool kTable = hn::MaxLanes(D()) == 16;
  const auto middle = hn::Set(d32, 8);
  const auto table =
      hn::Mul(hn::ConvertTo(d, hn::Sub(hn::Iota(d32, 0), middle)), hn::Set(d, scale));
  const auto value = [&](auto code) HWY_ATTR {
    if constexpr (kTable) {
      return hn::TableLookupLanes(table, hn::IndicesFromVec(d, code));
    } else {
      return hn::Mul(hn::ConvertTo(d, hn::Sub(code, middle)), hn::Set(d, scale));
    }
  };
  for (size_t i = 0; i < half; i += hn::MaxLanes(d)) {
    const auto both = hn::PromoteTo(d32, load_bits(d8, codes + i));
    store_f32(d, value(hn::And(both, hn::Set(d32, 15))), to + i);
    store_f32(d, value(hn::ShiftRight<4>(both)), to + half + i);
  }
}

template <int kBits, class D>
HWY_INLINE void widen_groups(D d, const CacheCodes& from, size_t group, const std::byte* row,
                             float* to) {
  const std::byte* scales = row + from.dim * kBits / 8;
  for (size_t i = 0; i < from.dim; i += group, scales += sizeof(uint16_t)) {
    const std::byte* const codes = row + i * kBits / 8;
    if constexpr (kBits == 8) {
      widen_group8(d, codes, code_scale(scales), group, to + i);
    } else {
      widen_group4(d, codes, code_scale(scales), group / 2, to + i);
    }
  }
}

template <int kBits>
HWY_INLINE void widen_rows(const CacheCodes& from, const std::byte* row, size_t count, float* to) {
  constexpr size_t kGroup = 32, kWidth = kBits == 8 ? 1 : 2;  // lanes of a vector: kLanes * kWidth
  const size_t group = from.group(), bytes = from.row_bytes();
  for (size_t j = 0; j < count; ++j, row += bytes, to += from.dim) {
    if (group == kGroup) {
      widen_groups<kBits>(F32(), from, kGroup, row, to);
    } else if (group % (kLanes * kWidth) == 0) {
      widen_groups<kBits>(F32(), from, group, row, to);
    } else {
      widen_groups<kBits>(F32x1(), from, group, row, to);
    }
  }
}

// Computes the values of `count` rows that follow each other in memory. They stay turned.
HWY_INLINE void widen_rows(const CacheCodes& from, const std::byte* row, size_t count, float* to) {
  from.bits == 8 ? widen_rows<8>(from, row, count, to) : widen_rows<4>(from, row, count, to);
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
