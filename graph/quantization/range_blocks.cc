// Blocks whose groups have a minimum: value = scale * code - minimum. In q2_k, q4_k and q5_k the
// scales and minima of the groups of a block are codes themselves.
#include "core/highway_targets.h"
// This include must follow the choice of targets.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "graph/quantization/range_blocks.cc"
#include "hwy/foreach_target.h"
// This include must follow foreach_target.h.
#include "hwy/highway.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "graph/quantization/block_encoder.h"
#include "graph/quantization/block_search-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ferry::graph {
namespace HWY_NAMESPACE {

constexpr size_t kValues = 256;
using Codes = std::array<uint8_t, kValues>;  // in the order of the values

// ggml tries more candidates with an importance matrix.
constexpr RangeSearch with_importance(int top) { return {top, -0.9f, 0.05f, 36, false}; }
constexpr RangeSearch kSearch2 = {3, -0.5f, 0.1f, 15, true};
constexpr RangeSearch kSearch4 = {15, -1.0f, 0.1f, 20, false};
constexpr RangeSearch kSearch5 = {31, -0.5f, 0.1f, 15, false};

// BlockRanges holds the results of a search for all groups of a block.
template <size_t kGroups>
struct BlockRanges {
  std::array<float, kGroups> scales, minima, factors, bases;
  std::array<float, kGroups> weights;  // sums; only with an importance matrix
  std::array<uint8_t, kGroups> scale_codes, minimum_codes;
};

// Searches all groups of a block. `importance` is that of the block's columns, or null.
template <size_t kGroups>
HWY_INLINE void search_block(const RangeSearch& search, const float* x, const float* importance,
                             BlockRanges<kGroups>& out) {
  constexpr size_t kSize = kValues / kGroups;
  SideBySide<kSize> side;
  Ranges found;
  // q2_k counts half of what the others do.
  const float share = kSize == 16 ? 1.0f : 2.0f;
  const float squares =
      importance == nullptr ? 0 : share * sum_of_squares(x, kValues) / static_cast<float>(kValues);
  for (size_t g = 0; g < kGroups; g += kSideGroups) {
    side.load(x + g * kSize, kSideGroups);
    if (importance != nullptr) {
      side.weigh(importance + g * kSize, squares, kSideGroups);
      side.sum_weights(out.weights.data() + g, kSideGroups);
    } else {
      side.weigh_by_size(/*and_mean=*/kSize == 32);
    }
    search_ranges(search, side, found);
    std::copy_n(found.scales.data(), kSideGroups, out.scales.data() + g);
    std::copy_n(found.minima.data(), kSideGroups, out.minima.data() + g);
    std::copy_n(found.factors.data(), kSideGroups, out.factors.data() + g);
    std::copy_n(found.bases.data(), kSideGroups, out.bases.data() + g);
  }
}

// Rounds scales, or minima, to codes up to `top` of one number, which is returned.
template <size_t kGroups>
HWY_INLINE float round_scales(const std::array<float, kGroups>& scales, int top,
                              std::array<uint8_t, kGroups>& codes) {
  const float most = std::max(0.0f, *std::max_element(scales.begin(), scales.end()));
  const auto last = static_cast<float>(top);
  const float factor = most > 0 ? last / most : 0.0f;
  for (size_t g = 0; g < kGroups; ++g) {
    codes[g] = static_cast<uint8_t>(std::min(top, rounded(factor * scales[g])));
  }
  return most / last;
}

// Writes the f16 scale and minimum of a block, and computes all codes. Each group has the codes
// that fit its rounded scale best. If that is 0, the codes of the search stay.
template <size_t kGroups>
HWY_INLINE void finish_block(const RangeSearch& search, const float* x, bool has_importance,
                             int scale_top, BlockRanges<kGroups>& found, uint8_t* halves,
                             Codes& codes) {
  constexpr size_t kSize = kValues / kGroups;
  if (has_importance) {
    put_f16(halves, fit_scales(scale_top, found.scales.data(), found.weights.data(), kGroups,
                               found.scale_codes.data()));
    put_f16(halves + 2, fit_scales(scale_top, found.minima.data(), found.weights.data(), kGroups,
                                   found.minimum_codes.data()));
  } else {
    put_f16(halves, round_scales(found.scales, scale_top, found.scale_codes));
    put_f16(halves + 2, round_scales(found.minima, scale_top, found.minimum_codes));
  }
  const float d = f16_at(halves), m = f16_at(halves + 2);
  const F32 d32;
  const hn::Rebind<uint8_t, F32> d8;
  const hn::RebindToSigned<F32> di;
  for (size_t g = 0; g < kGroups; ++g) {
    const float scale = d * static_cast<float>(found.scale_codes[g]);
    const float minimum = m * static_cast<float>(found.minimum_codes[g]);
    for (size_t i = g * kSize; i < (g + 1) * kSize; i += kLanes) {
      const VF32 value = hn::LoadU(d32, x + i);
      const VF32 code =
          scale == 0 ? range_code(value, hn::Set(d32, found.bases[g]),
                                  hn::Set(d32, found.factors[g]), search.top)
                     : rounded(hn::Div(hn::Add(value, hn::Set(d32, minimum)), hn::Set(d32, scale)),
                               0, search.top);
      hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(di, code)), d8, codes.data() + i);
    }
  }
}

// Stores six bits of each scale and each minimum, in 12 bytes.
HWY_INLINE void put_six_bits(const BlockRanges<8>& found, uint8_t* to) {
  const auto &scales = found.scale_codes, &minima = found.minimum_codes;
  for (size_t j = 0; j < 4; ++j) {
    to[j] = static_cast<uint8_t>(scales[j] | scales[j + 4] >> 4 << 6);
    to[j + 4] = static_cast<uint8_t>(minima[j] | minima[j + 4] >> 4 << 6);
    to[j + 8] = static_cast<uint8_t>((scales[j + 4] & 0xf) | (minima[j + 4] & 0xf) << 4);
  }
}

// Each 32 bytes hold two groups, the first one in the low nibbles.
HWY_INLINE void put_nibbles(const Codes& codes, uint8_t* to) {
  for (size_t i = 0; i < kValues / 2; ++i) {
    const size_t at = i / 32 * 64 + i % 32;
    to[i] = static_cast<uint8_t>((codes[at] & 0xf) | codes[at + 32] << 4);
  }
}

// Calls body(values, importance, out) for each block of all rows.
template <class Body>
HWY_INLINE void for_each_block(const BlockRows& rows, size_t bytes, uint8_t* out,
                               const Body& body) {
  const float* x = rows.values;
  for (size_t row = 0; row < rows.rows; ++row) {
    for (size_t at = 0; at < rows.columns; at += kValues, x += kValues, out += bytes) {
      body(x, rows.importance == nullptr ? nullptr : rows.importance + at, out);
    }
  }
}

void encode_q2_k_task(const BlockRows& rows, uint8_t* out) {
  const bool has_importance = rows.importance != nullptr;
  const RangeSearch search = has_importance ? with_importance(3) : kSearch2;
  Codes codes;
  BlockRanges<16> found;
  for_each_block(rows, 84, out, [&](const float* x, const float* importance, uint8_t* to) {
    search_block(search, x, importance, found);
    finish_block(search, x, has_importance, 15, found, to + 80, codes);
    for (size_t g = 0; g < 16; ++g) {
      to[g] = static_cast<uint8_t>(found.scale_codes[g] | found.minimum_codes[g] << 4);
    }
    for (size_t i = 0; i < 64; ++i) {
      const uint8_t* c = codes.data() + i / 32 * 128 + i % 32;
      to[16 + i] = static_cast<uint8_t>(c[0] | c[32] << 2 | c[64] << 4 | c[96] << 6);
    }
  });
}

void encode_q4_k_task(const BlockRows& rows, uint8_t* out) {
  const bool has_importance = rows.importance != nullptr;
  const RangeSearch search = has_importance ? with_importance(15) : kSearch4;
  Codes codes;
  BlockRanges<8> found;
  for_each_block(rows, 144, out, [&](const float* x, const float* importance, uint8_t* to) {
    search_block(search, x, importance, found);
    finish_block(search, x, has_importance, 63, found, to, codes);
    put_six_bits(found, to + 4);
    put_nibbles(codes, to + 16);
  });
}

void encode_q5_k_task(const BlockRows& rows, uint8_t* out) {
  const bool has_importance = rows.importance != nullptr;
  const RangeSearch search = has_importance ? with_importance(31) : kSearch5;
  Codes codes;
  BlockRanges<8> found;
  for_each_block(rows, 176, out, [&](const float* x, const float* importance, uint8_t* to) {
    search_block(search, x, importance, found);
    finish_block(search, x, has_importance, 63, found, to, codes);
    put_six_bits(found, to + 4);
    std::memset(to + 16, 0, 32);
    for (size_t i = 0; i < kValues; ++i) {
      to[16 + i % 32] = static_cast<uint8_t>(to[16 + i % 32] | codes[i] >> 4 << i / 32);
    }
    put_nibbles(codes, to + 48);
  });
}

// Blocks of 32 values with an importance matrix: q4_1 and q5_1. A block has an f16 scale, an f16
// least value and its codes.
HWY_INLINE void search_small_ranges(const BlockRows& rows, int top, size_t bytes, uint8_t* out,
                                    void (*put_codes)(const uint8_t*, uint8_t*)) {
  SideBySide<32> side;
  Ranges found;
  const float* x = rows.values;
  for (size_t row = 0; row < rows.rows; ++row) {
    const float squares =
        sum_of_squares(x, rows.columns) / static_cast<float>(static_cast<int64_t>(rows.columns));
    for (size_t at = 0; at < rows.columns;) {
      const size_t groups = std::min(kSideGroups, (rows.columns - at) / 32);
      side.load(x, groups);
      side.weigh(rows.importance + at, squares, groups);
      search_ranges(with_importance(top), side, found);
      for (size_t g = 0; g < groups; ++g, x += 32, at += 32, out += bytes) {
        std::array<uint8_t, 32> codes;
        for (size_t i = 0; i < 32; ++i) {
          const int code = rounded(found.factors[g] * (x[i] - found.bases[g]));
          codes[i] = static_cast<uint8_t>(std::clamp(code, 0, top));
        }
        put_f16(out, found.scales[g]);
        put_f16(out + 2, -found.minima[g]);
        put_codes(codes.data(), out + 4);
      }
    }
  }
}

void search_q4_1_task(const BlockRows& rows, uint8_t* out) {
  search_small_ranges(rows, 15, 20, out, put_nibbles32);
}

void search_q5_1_task(const BlockRows& rows, uint8_t* out) {
  search_small_ranges(rows, 31, 24, out, put_five_bits32);
}

}  // namespace HWY_NAMESPACE
}  // namespace ferry::graph
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ferry::graph {
namespace {
HWY_EXPORT(encode_q2_k_task);
HWY_EXPORT(encode_q4_k_task);
HWY_EXPORT(encode_q5_k_task);
HWY_EXPORT(search_q4_1_task);
HWY_EXPORT(search_q5_1_task);
}  // namespace

void encode_q2_k(const BlockRows& rows, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(encode_q2_k_task)(rows, reinterpret_cast<uint8_t*>(out));
}

void encode_q4_k(const BlockRows& rows, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(encode_q4_k_task)(rows, reinterpret_cast<uint8_t*>(out));
}

void encode_q5_k(const BlockRows& rows, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(encode_q5_k_task)(rows, reinterpret_cast<uint8_t*>(out));
}

void search_q4_1(const BlockRows& rows, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(search_q4_1_task)(rows, reinterpret_cast<uint8_t*>(out));
}

void search_q5_1(const BlockRows& rows, std::byte* out) {
  HWY_DYNAMIC_DISPATCH(search_q5_1_task)(rows, reinterpret_cast<uint8_t*>(out));
}

}  // namespace ferry::graph
#endif  // HWY_ONCE
