// Converts values to codes, and codes to values.
#include "core/highway_targets.h"
// This include must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "graph/quantization/codes.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "hwy/highway.h"

#include <algorithm>
#include <bit>
#include <cstdint>

#include "graph/quantization/groups.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::graph {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
constexpr size_t kLanes = hn::MaxLanes(F32());

// This many values are converted at a time. The number is even.
constexpr size_t kTile = 1024;

// Adding 1.5 * 2^23 leaves the rounded value in the lowest bits. `offset` is even, so that ties go
// to the even code.
struct Encoder {
  float low, high;
  float shift;  // 1.5 * 2^23 + offset
};

template <class D>
HWY_INLINE hn::Vec<hn::Rebind<uint8_t, D>> encode(D d, const Encoder& e, const float* x,
                                                  hn::Vec<D> scale) {
  const hn::RebindToUnsigned<D> d32;
  const auto steps = hn::Div(hn::LoadU(d, x), scale);
  const auto code = hn::Min(hn::Max(steps, hn::Set(d, e.low)), hn::Set(d, e.high));
  const auto bits = hn::BitCast(d32, hn::Add(code, hn::Set(d, e.shift)));
  return hn::TruncateTo(hn::Rebind<uint8_t, D>(), bits);
}

// Encodes n values of one group, with a byte for each.
HWY_INLINE void encode_bytes(const Encoder& e, const float* x, size_t n, float scale,
                             uint8_t* out) {
  const F32 d;
  const hn::CappedTag<float, 1> d1;
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    hn::StoreU(encode(d, e, x + i, hn::Set(d, scale)), hn::Rebind<uint8_t, F32>(), out + i);
  }
  for (; i < n; ++i) out[i] = hn::GetLane(encode(d1, e, x + i, hn::Set(d1, scale)));
}

void pack_nibbles(NibbleOrder order, const uint8_t* nibbles, size_t pairs, uint8_t* out) {
  if (order == NibbleOrder::kLowFirst) {
    for (size_t i = 0; i < pairs; ++i) {
      out[i] = static_cast<uint8_t>(nibbles[2 * i] | nibbles[2 * i + 1] << 4);
    }
  } else {
    for (size_t i = 0; i < pairs; ++i) {
      out[i] = static_cast<uint8_t>(nibbles[2 * i] << 4 | nibbles[2 * i + 1]);
    }
  }
}

void encode_task(int bits, NibbleOrder order, const Groups& groups, const float* scales,
                 uint8_t* codes) {
  const bool packed = bits == 4;
  const Encoder e =
      packed ? Encoder{-8.0f, 7.0f, 0x1.8p23f + 8.0f} : Encoder{-128.0f, 127.0f, 0x1.8p23f};
  uint8_t bytes[kTile];
  size_t filled = 0;
  const float* x = groups.values;
  for (size_t g = 0; g < groups.count; ++g) {
    for (size_t left = groups.size; left > 0;) {
      const size_t n = std::min(left, kTile - filled);
      uint8_t* out = packed ? bytes + filled : codes;
      encode_bytes(e, x, n, scales[g], out);
      x += n;
      left -= n;
      if (!packed) {
        codes += n;
        continue;
      }
      filled += n;
      if (filled < kTile && (left > 0 || g + 1 < groups.count)) continue;
      pack_nibbles(order, bytes, filled / 2, codes);
      codes += filled / 2;
      filled = 0;
    }
  }
}

// Decodes nibbles. `at` counts from the first nibble of `codes`.
HWY_INLINE void decode_nibbles(NibbleOrder order, const uint8_t* codes, size_t at, size_t n,
                               float scale, float* values) {
  const int first = order == NibbleOrder::kLowFirst ? 0 : 4;
  const auto value = [&](size_t i) HWY_ATTR {
    const int nibble = codes[i / 2] >> (i % 2 == 0 ? first : 4 - first) & 15;
    return static_cast<float>(nibble - 8) * scale;
  };
  size_t i = 0;
  for (; i < n && (at + i) % 2 != 0; ++i) values[i] = value(at + i);
  const uint8_t* pairs = codes + (at + i) / 2;
  float* out = values + i;
  const size_t count = (n - i) / 2;
  for (size_t p = 0; p < count; ++p) {
    out[2 * p] = static_cast<float>((pairs[p] >> first & 15) - 8) * scale;
    out[2 * p + 1] = static_cast<float>((pairs[p] >> (4 - first) & 15) - 8) * scale;
  }
  for (i += 2 * count; i < n; ++i) values[i] = value(at + i);
}

bool finite_task(const float* values, size_t count) {
  const F32 d;
  const hn::RebindToSigned<F32> d32;
  // Compares the bits without the sign: infinity is above all numbers, NaN above infinity.
  const auto magnitude = hn::Set(d32, 0x7fffffff);
  auto most = hn::Zero(d32), other = hn::Zero(d32);
  size_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    most = hn::Max(most, hn::And(hn::BitCast(d32, hn::LoadU(d, values + i)), magnitude));
    other = hn::Max(other, hn::And(hn::BitCast(d32, hn::LoadU(d, values + i + kLanes)), magnitude));
  }
  int32_t result = hn::GetLane(hn::MaxOfLanes(d32, hn::Max(most, other)));
  for (; i < count; ++i) result = std::max(result, std::bit_cast<int32_t>(values[i]) & 0x7fffffff);
  return result < 0x7f800000;
}

void decode_task(int bits, NibbleOrder order, const uint8_t* codes, const float* scales,
                 size_t size, size_t count, float* values) {
  for (size_t g = 0; g < count; ++g, values += size) {
    const float scale = scales[g];
    if (bits == 4) {
      decode_nibbles(order, codes, g * size, size, scale, values);
      continue;
    }
    const auto* bytes = reinterpret_cast<const int8_t*>(codes + g * size);
    for (size_t i = 0; i < size; ++i) values[i] = static_cast<float>(bytes[i]) * scale;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::graph
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ferry::graph {
namespace {
HWY_EXPORT(encode_task);
HWY_EXPORT(decode_task);
HWY_EXPORT(finite_task);
}  // namespace

void encode_groups(int bits, NibbleOrder order, const Groups& groups, const float* scales,
                   std::byte* codes) {
  HWY_DYNAMIC_DISPATCH(encode_task)
  (bits, order, groups, scales, reinterpret_cast<uint8_t*>(codes));
}

bool all_finite(const float* values, size_t count) {
  return HWY_DYNAMIC_DISPATCH(finite_task)(values, count);
}

void decode_groups(int bits, NibbleOrder order, const std::byte* codes, const float* scales,
                   size_t size, size_t count, float* values) {
  HWY_DYNAMIC_DISPATCH(decode_task)
  (bits, order, reinterpret_cast<const uint8_t*>(codes), scales, size, count, values);
}

}  // namespace ferry::graph
#endif  // HWY_ONCE
