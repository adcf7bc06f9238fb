// Building blocks of the compute kernels: loads that widen to f32, horizontal sums in a fixed
// order, exp. The compute_*.cc files include this file once per target.

// clang-format off
#if defined(FERRY_COMPUTE_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FERRY_COMPUTE_SIMD_INL_H_
#undef FERRY_COMPUTE_SIMD_INL_H_
#else
#define FERRY_COMPUTE_SIMD_INL_H_
#endif
// clang-format on

#include <cstdint>
#include <cstring>

#include <type_traits>
#include "hwy/cache_control.h"
#include "hwy/highway.h"

#include "kernels/compute_types.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF32 = hn::Vec<F32>;
// A tag for one lane, which computes the rest of a row with the same arithmetic.
using F32x1 = hn::CappedTag<float, 1>;
constexpr size_t kLanes = hn::MaxLanes(F32());
static_assert(kMaxLanes % kLanes == 0);

// Loads from any alignment, also for single lanes.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_bits(D d, const void* p) {
  if constexpr (hn::MaxLanes(D()) == 1) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return hn::Set(d, value);
  } else {
    return hn::LoadU(d, static_cast<const T*>(p));
  }
}

template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const float* p) {
  return load_bits(d, p);
}

template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const BF16* p) {
  const hn::Rebind<uint16_t, D> d16;
  const hn::Rebind<uint32_t, D> d32;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, load_bits(d16, p))));
}

// Highway's own conversion of f16 without F16C does not support infinities and NaN.
template <class D>
HWY_INLINE hn::Vec<D> load_f32(D d, const F16* p) {
  const hn::Rebind<uint16_t, D> d16;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  const hn::Rebind<hwy::float16_t, D> df16;
  return hn::PromoteTo(d, hn::BitCast(df16, load_bits(d16, p)));
#else
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::PromoteTo(d32, load_bits(d16, p));
  const auto magnitude = hn::And(bits, hn::Set(d32, 0x7fffu));
  const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
  // The exponent of the shifted value is too small by 112; the product is exact, also for
  // subnormal values. Infinities and NaN get the full exponent back.
  const auto scaled = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112f));
  const auto special = hn::RebindMask(d32, hn::Ge(scaled, hn::Set(d, 65536.0f)));
  const auto wide =
      hn::Or(hn::BitCast(d32, scaled), hn::IfThenElseZero(special, hn::Set(d32, 0x7f800000u)));
  return hn::BitCast(d, hn::Or(wide, sign));
#endif
}

// Returns the 16 bits of round-to-nearest-even in the low half of each lane. NaN stays a quiet NaN.
template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint32_t, D>> to_bits16(D /*d*/, hn::Vec<D> v, BF16) {
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::BitCast(d32, v);
  const auto high = hn::ShiftRight<16>(bits);
  const auto odd = hn::And(high, hn::Set(d32, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fffu))));
  return hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(v)), hn::Or(high, hn::Set(d32, 0x40u)),
                        rounded);
}

template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint32_t, D>> to_bits16(D d, hn::Vec<D> v, F16) {
  const hn::Rebind<uint32_t, D> d32;
  const auto bits = hn::BitCast(d32, v);
  const auto magnitude = hn::And(bits, hn::Set(d32, 0x7fffffffu));
  const auto sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
  const auto abs = hn::BitCast(d, magnitude);
  // Adding 1/2 leaves a subnormal f16, rounded by the adder, in the lowest bits.
  const auto half = hn::Set(d, 0.5f);
  const auto tiny = hn::Sub(hn::BitCast(d32, hn::Add(abs, half)), hn::BitCast(d32, half));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d32, 1u));
  const auto normal = hn::ShiftRight<13>(
      hn::Add(hn::Sub(magnitude, hn::Set(d32, 0x38000000u)), hn::Add(odd, hn::Set(d32, 0xfffu))));
  const auto nan =
      hn::Or(hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d32, 0x3ffu)), hn::Set(d32, 0x7e00u));
  auto r = hn::IfThenElse(hn::RebindMask(d32, hn::Lt(abs, hn::Set(d, 0x1p-14f))), tiny, normal);
  r = hn::IfThenElse(hn::RebindMask(d32, hn::Ge(abs, hn::Set(d, 65536.0f))), hn::Set(d32, 0x7c00u),
                     r);
  r = hn::IfThenElse(hn::RebindMask(d32, hn::IsNaN(v)), nan, r);
  return hn::Or(r, sign);
}

template <class D>
HWY_INLINE void store_f32(D d, hn::Vec<D> v, float* p) {
  hn::StoreU(v, d, p);
}

template <class D, class T>
HWY_INLINE void store_f32(D d, hn::Vec<D> v, T* p) {
  const hn::Rebind<uint16_t, D> d16;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  if constexpr (std::is_same_v<T, F16>) {
    const hn::Rebind<hwy::float16_t, D> df16;
    hn::StoreU(hn::BitCast(d16, hn::DemoteTo(df16, v)), d16, &p->bits);
    return;
  }
#endif
  // The lanes are below 65536, so the saturating conversion from signed lanes is exact.
  const hn::Rebind<int32_t, D> di32;
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di32, to_bits16(d, v, T()))), d16, &p->bits);
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void sum4(VF32 a, VF32 b, VF32 c, VF32 e, float* out) {
  out[0] = hn::GetLane(a);
  out[1] = hn::GetLane(b);
  out[2] = hn::GetLane(c);
  out[3] = hn::GetLane(e);
}
#else
template <class D>
HWY_INLINE hn::Vec<hn::CappedTag<float, 4>> fold_blocks(D /*d*/, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return fold_blocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// Returns the sums of lanes i, 4 + i, ... of four vectors, for fold_blocks to add.
HWY_INLINE VF32 fold_lanes(VF32 a, VF32 b, VF32 c, VF32 e) {
  const F32 d;
  const hn::Repartition<double, F32> pairs;
  const auto ab =
      hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b)));
  const auto ce =
      hn::BitCast(pairs, hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e)));
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, ab, ce)),
                 hn::BitCast(d, hn::InterleaveUpper(pairs, ab, ce)));
}

// Computes out[i] as the sum of the lanes of the i-th vector, with one order of additions for all
// four.
HWY_INLINE void sum4(VF32 a, VF32 b, VF32 c, VF32 e, float* out) {
  hn::StoreU(fold_blocks(F32(), fold_lanes(a, b, c, e)), hn::CappedTag<float, 4>(), out);
}
#endif

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
// Computes out[4 * i + j] as sum4 does for vector j of the i-th call of fold_lanes, with fewer
// moves between blocks.
HWY_INLINE void sum16(VF32 a, VF32 b, VF32 c, VF32 e, float* out) {
  const F32 d;
  const VF32 ac = hn::Add(hn::ConcatLowerLower(d, c, a), hn::ConcatUpperUpper(d, c, a));
  const VF32 be = hn::Add(hn::ConcatLowerLower(d, e, b), hn::ConcatUpperUpper(d, e, b));
  const VF32 even = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(be), ac);
  const VF32 odd = hn::OddEvenBlocks(be, hn::SwapAdjacentBlocks(ac));
  hn::StoreU(hn::Add(even, odd), d, out);
}
#endif

HWY_INLINE float sum1(VF32 v) {
  const VF32 zero = hn::Zero(F32());
  HWY_ALIGN float sums[4];
  sum4(v, zero, zero, zero, sums);
  return sums[0];
}

// Returns e^x with an error of at most 1 ulp. NaN stays NaN, values below -104 give 0 and values
// above 88.73 infinity.
template <class D>
HWY_INLINE hn::Vec<D> exp_lanes(D d, hn::Vec<D> x) {
  const hn::Rebind<int32_t, D> di;
  const auto high = hn::Set(d, 89.0f);
  const auto low = hn::Set(d, -104.0f);
  x = hn::IfThenElse(hn::Gt(x, high), high, x);
  const auto vanishes = hn::Lt(x, low);
  x = hn::IfThenElse(vanishes, low, x);
  // x = q ln 2 + r with |r| <= ln 2 / 2. ln 2 is split in two parts, and the first has few bits, so
  // that its product with q is exact.
  auto q = hn::Round(hn::Mul(x, hn::Set(d, 1.44269504088896341f)));
  q = hn::IfThenElseZero(hn::Eq(q, q), q);
  auto r = hn::MulAdd(q, hn::Set(d, -0.693145751953125f), x);
  r = hn::MulAdd(q, hn::Set(d, -1.42860682030941723e-6f), r);
  // The Taylor polynomial to r^7 is within a quarter of an ulp on this interval.
  auto p = hn::Set(d, 1.0f / 5040);
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 720));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 120));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 24));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f / 6));
  p = hn::MulAdd(p, r, hn::Set(d, 0.5f));
  // The rounding error of 1 + r is added later, so that only the last addition rounds.
  const auto one = hn::Set(d, 1.0f);
  const auto sum = hn::Add(one, r);
  const auto lost = hn::Sub(r, hn::Sub(sum, one));
  p = hn::Add(sum, hn::MulAdd(p, hn::Mul(r, r), lost));
  // A product below the normal numbers takes processors 100 cycles. Hidden keys have many of them.
  p = hn::IfThenZeroElse(vanishes, p);
  // 2^q is computed as two factors, because q may be outside the range of one exponent.
  const auto qi = hn::ConvertTo(di, q);
  const auto first = hn::ShiftRight<1>(qi);
  const auto bias = hn::Set(di, 127);
  const auto scale1 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(first, bias)));
  const auto scale2 = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(qi, first), bias)));
  return hn::Mul(hn::Mul(p, scale1), scale2);
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::kernels
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
