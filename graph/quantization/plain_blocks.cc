// q8_0, and q4_0 without an importance matrix: blocks of 32 values and one scale.
#include "core/highway_targets.h"
// This include must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "graph/quantization/plain_blocks.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "hwy/highway.h"

#include <array>
#include <cmath>
#include <cstring>

#include "graph/quantization/block_encoder.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::graph {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kValues = 32;
using F32 = hn::CappedTag<float, 16>;
constexpr size_t kLanes = hn::MaxLanes(F32());

// Returns 1 / d. If that is infinite, ggml's codes are 0 for all values.
HWY_INLINE float inverse_of(float d) { return d != 0 ? 1.0f / d : 0.0f; }

// Stores codes as bytes.
template <class V>
HWY_INLINE void put_codes(V codes, uint8_t* to) {
  const hn::RebindToSigned<F32> di;
  const hn::Rebind<int8_t, F32> d8;
  hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(di, codes)), d8, reinterpret_cast<int8_t*>(to));
}

void encode_q8_0_task(const float* x, size_t blocks, uint8_t* out) {
  const F32 d32;
  for (size_t b = 0; b < blocks; ++b, x += kValues, out += 34) {
    auto most = hn::Zero(d32);
    for (size_t i = 0; i < kValues; i += kLanes) {
      most = hn::Max(most, hn::Abs(hn::LoadU(d32, x + i)));
    }
    const float d = hn::GetLane(hn::MaxOfLanes(d32, most)) / 127;
    const float inverse = inverse_of(d);
    put_f16(out, d);
    if (!(inverse <= 3.4e38f)) {
      std::memset(out + 2, 0, kValues);
      continue;
    }
    for (size_t i = 0; i < kValues; i += kLanes) {
      const auto value = hn::Mul(hn::LoadU(d32, x + i), hn::Set(d32, inverse));
      const auto size = hn::Abs(value);
      const auto whole = hn::Trunc(size);
      const auto rest = hn::Sub(size, whole);  // exact
      const auto up = hn::IfThenElseZero(hn::Ge(rest, hn::Set(d32, 0.5f)), hn::Set(d32, 1.0f));
      put_codes(hn::CopySign(hn::Add(whole, up), value), out + 2 + i);
    }
  }
}

// Returns the value of largest magnitude, the first of equals.
HWY_INLINE float largest_of(const float* x) {
  const F32 d32;
  auto most = hn::Zero(d32);
  for (size_t i = 0; i < kValues; i += kLanes) {
    most = hn::Max(most, hn::Abs(hn::LoadU(d32, x + i)));
  }
  const auto found = hn::Set(d32, hn::GetLane(hn::MaxOfLanes(d32, most)));
  for (size_t i = 0; i < kValues; i += kLanes) {
    const intptr_t at = hn::FindFirstTrue(d32, hn::Eq(hn::Abs(hn::LoadU(d32, x + i)), found));
    if (at >= 0) return x[i + static_cast<size_t>(at)];
  }
  return 0;
}

void encode_q4_0_task(const float* x, size_t blocks, uint8_t* out) {
  const F32 d32;
  std::array<uint8_t, kValues> codes;
  for (size_t b = 0; b < blocks; ++b, x += kValues, out += 18) {
    const float largest = largest_of(x);
    const float d = (largest == 0 ? 0.0f : largest) / -8;
    const float inverse = inverse_of(d);
    put_f16(out, d);
    if (!(std::abs(inverse) <= 3.4e38f)) {
      std::memset(out + 2, 0, kValues / 2);
      continue;
    }
    for (size_t i = 0; i < kValues; i += kLanes) {
      const auto value = hn::Mul(hn::LoadU(d32, x + i), hn::Set(d32, inverse));
      const auto shifted = hn::Add(value, hn::Set(d32, 8.5f));
      put_codes(hn::Trunc(hn::Min(shifted, hn::Set(d32, 15.0f))), codes.data() + i);
    }
    put_nibbles32(codes.data(), out + 2);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::graph
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ferry::graph {
namespace {
HWY_EXPORT(encode_q8_0_task);
HWY_EXPORT(encode_q4_0_task);
}  // namespace

void encode_q8_0(const BlockRows& rows, std::byte* out) {
  const size_t blocks = rows.rows * rows.columns / HWY_NAMESPACE::kValues;
  HWY_DYNAMIC_DISPATCH(encode_q8_0_task)(rows.values, blocks, reinterpret_cast<uint8_t*>(out));
}

void encode_q4_0(const BlockRows& rows, std::byte* out) {
  if (rows.importance != nullptr) return search_q4_0(rows, out);
  const size_t blocks = rows.rows * rows.columns / HWY_NAMESPACE::kValues;
  HWY_DYNAMIC_DISPATCH(encode_q4_0_task)(rows.values, blocks, reinterpret_cast<uint8_t*>(out));
}

}  // namespace ferry::graph
#endif  // HWY_ONCE
