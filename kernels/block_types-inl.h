// Unpacks blocks of GGUF files into codes of a byte, scales and offsets, 256 columns at a time.
// block_linear.cc includes this file once per target, block_vnni.cc for AVX-512 with VNNI, and
// others for other instructions (block_sets.cc).

// clang-format off
#if defined(FERRY_BLOCK_TYPES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FERRY_BLOCK_TYPES_INL_H_
#undef FERRY_BLOCK_TYPES_INL_H_
#else
#define FERRY_BLOCK_TYPES_INL_H_
#endif
// clang-format on

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kernels/compute_simd-inl.h"
#include "kernels/fetch_ahead.h"

// The namespace of this code and the instructions that it may use, if they are not those of the
// target. FERRY_BLOCK_VNNI is the number of bits of the vectors of tiles. FERRY_BLOCK_NEON is 1 for
// dot products, 2 for products of matrices too.
#ifndef FERRY_BLOCK_NAMESPACE
#define FERRY_BLOCK_NAMESPACE HWY_NAMESPACE
#define FERRY_BLOCK_BEFORE() HWY_BEFORE_NAMESPACE()
#define FERRY_BLOCK_AFTER() HWY_AFTER_NAMESPACE()
#define FERRY_BLOCK_ATTR HWY_ATTR
#endif
#ifndef FERRY_BLOCK_VNNI
#define FERRY_BLOCK_VNNI 0
#endif
#ifndef FERRY_BLOCK_NEON
#define FERRY_BLOCK_NEON 0
#endif

FERRY_BLOCK_BEFORE();
namespace ferry::kernels {
namespace FERRY_BLOCK_NAMESPACE {

constexpr size_t kChunkColumns = 256, kGroupColumns = 32, kChunkGroups = 8;

// The columns of a chunk. value = scale[group] * code + offset, where a type with halves has
// scale[group] * half[2 * group + half] as the scale of 16 columns.
struct BlockChunk {
  HWY_ALIGN uint8_t codes[kChunkColumns];  // i8 if the type is signed
  HWY_ALIGN float scale[kChunkGroups];
  HWY_ALIGN float minimum[2][kChunkGroups];  // by half; only the first without halves
  HWY_ALIGN int16_t half[2 * kChunkGroups];
};

// A type has these members:
//   kElements, kBytes   of a block
//   kSigned             codes are i8, and there are no offsets; else u8, at most kMaxCode
//   kZero               the code of zero: the offset has -kZero * scale
//   kMinima             the offset has a minimum of its own
//   kHalves             16 columns have a scale
//   unpack(p, n, chunk) unpacks n blocks; n is a constant of the type Whole for whole chunks

// A number of blocks as a constant, so that loops over blocks are unrolled.
template <size_t kBlocks>
struct Whole {
  constexpr operator size_t() const { return kBlocks; }
};

// Fetches the cache lines of `bytes` bytes that lie `ahead` behind p.
HWY_INLINE void fetch(const uint8_t* p, FetchDistance ahead, size_t bytes) {
  if (ahead.bytes == 0) return;
  for (size_t i = 0; i < bytes; i += 64) ahead.fetch(p + i);
}

// ---- steps that types share

// Codes are made in registers: a load of bytes that two stores wrote would wait for both.

using Codes = hn::CappedTag<uint8_t, 32>;
using VCodes = hn::Vec<Codes>;

// Returns `bit` in each lane whose flags have one of the bits of `mask`.
HWY_INLINE VCodes bit_where(VCodes flags, uint8_t mask, uint8_t bit) {
  const Codes d;
  const auto absent = hn::Eq(hn::And(flags, hn::Set(d, mask)), hn::Zero(d));
  return hn::IfThenZeroElse(absent, hn::Set(d, bit));
}

HWY_INLINE VCodes two_bits_at(VCodes v, size_t shift) {
  const Codes d;
  const auto three = hn::Set(d, uint8_t{3});
  if (shift == 0) return hn::And(v, three);
  if (shift == 2) return hn::And(hn::ShiftRight<2>(v), three);
  if (shift == 4) return hn::And(hn::ShiftRight<4>(v), three);
  return hn::ShiftRight<6>(v);
}

// The numbers that the codes of IQ4_NL and IQ4_XS stand for (core/encoding.h).
alignas(16) constexpr int8_t kIq4Codes[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};

// Twice the numbers that the codes of MXFP4 stand for. Source: OCP Microscaling Formats, E2M1.
alignas(16) constexpr int8_t kMxfp4Codes[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                0, -1, -2, -3, -4, -6, -8, -12};

enum class Nibble { kPlain, kFifth, kIq4, kMxfp4 };
template <Nibble kKind>
constexpr const int8_t* kNibbleTable = kKind == Nibble::kMxfp4 ? kMxfp4Codes : kIq4Codes;
template <Nibble kKind>
constexpr bool kIsLookedUp = kKind == Nibble::kIq4 || kKind == Nibble::kMxfp4;

// Writes 32 codes of 16 bytes: low nibbles, then high ones. With kFifth, bit j of the word at
// `fifth` adds 16 to code j.
template <Nibble kKind>
HWY_INLINE void nibbles_of_16(const uint8_t* p, const uint8_t* fifth, uint8_t* codes) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  __m256i out = _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(v, 4), v), _mm256_set1_epi8(15));
  if constexpr (kKind == Nibble::kFifth) {
    int32_t word;
    std::memcpy(&word, fifth, sizeof word);
    const __m256i spread = _mm256_shuffle_epi8(
        _mm256_set1_epi32(word), _mm256_setr_epi64x(0x0000000000000000, 0x0101010101010101,
                                                    0x0202020202020202, 0x0303030303030303));
    const __m256i bits = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201));
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bits), bits);
    out = _mm256_or_si256(out, _mm256_and_si256(set, _mm256_set1_epi8(16)));
  }
  if constexpr (kIsLookedUp<kKind>) {
    const __m128i table = _mm_load_si128(reinterpret_cast<const __m128i*>(kNibbleTable<kKind>));
    out = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), out);
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes), out);
#elif HWY_ARCH_ARM_A64 && HWY_TARGET == HWY_NEON
  const uint8x16_t v = vld1q_u8(p);
  uint8x16_t halves[2] = {vandq_u8(v, vdupq_n_u8(15)), vshrq_n_u8(v, 4)};
  for (size_t h = 0; h < 2; ++h) {
    if constexpr (kKind == Nibble::kFifth) {
      const uint8x16_t bits = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
      const uint8x16_t bytes = vcombine_u8(vdup_n_u8(fifth[2 * h]), vdup_n_u8(fifth[2 * h + 1]));
      const uint8x16_t set = vandq_u8(vtstq_u8(bytes, bits), vdupq_n_u8(16));
      halves[h] = vorrq_u8(halves[h], set);
    }
    if constexpr (kIsLookedUp<kKind>) {
      const auto* table = reinterpret_cast<const uint8_t*>(kNibbleTable<kKind>);
      halves[h] = vqtbl1q_u8(vld1q_u8(table), halves[h]);
    }
    vst1q_u8(codes + 16 * h, halves[h]);
  }
#else
  for (size_t j = 0; j < 32; ++j) {
    const uint8_t code = j < 16 ? p[j] & 15 : p[j - 16] >> 4;
    codes[j] = kIsLookedUp<kKind> ? static_cast<uint8_t>(kNibbleTable<kKind>[code]) : code;
    if constexpr (kKind == Nibble::kFifth) codes[j] |= (fifth[j / 8] >> (j % 8) & 1) << 4;
  }
#endif
}

// Widens 8 numbers in f16 that are `stride` bytes apart.
template <class N>
HWY_INLINE void load_halves(const uint8_t* p, size_t stride, N count, float* out) {
  HWY_ALIGN F16 bits[kChunkGroups] = {};
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  if constexpr (!std::is_same_v<N, size_t>) {
    const auto at = [&](size_t i) {
      uint16_t number;
      std::memcpy(&number, p + i * stride, sizeof number);
      return static_cast<int>(number);
    };
    constexpr size_t kCount = N();
    __m128i v = _mm_cvtsi32_si128(at(0));
    if constexpr (kCount > 1) v = _mm_insert_epi16(v, at(1), 1);
    if constexpr (kCount > 2) v = _mm_insert_epi16(v, at(2), 2);
    if constexpr (kCount > 3) v = _mm_insert_epi16(v, at(3), 3);
    if constexpr (kCount > 4) v = _mm_insert_epi16(v, at(4), 4);
    if constexpr (kCount > 5) v = _mm_insert_epi16(v, at(5), 5);
    if constexpr (kCount > 6) v = _mm_insert_epi16(v, at(6), 6);
    if constexpr (kCount > 7) v = _mm_insert_epi16(v, at(7), 7);
    _mm256_store_ps(out, _mm256_cvtph_ps(v));
    return;
  }
#endif
  for (size_t i = 0; i < count; ++i) std::memcpy(&bits[i], p + i * stride, sizeof(F16));
  const hn::CappedTag<float, kChunkGroups> d;
  for (size_t i = 0; i < kChunkGroups; i += hn::Lanes(d)) {
    hn::StoreU(load_f32(d, bits + i), d, out + i);
  }
}

HWY_INLINE float half_at(const uint8_t* p) {
  HWY_ALIGN F16 bits[1];
  std::memcpy(bits, p, sizeof bits);
  float out[1];
  hn::StoreU(load_f32(F32x1(), bits), F32x1(), out);
  return out[0];
}

// Writes factor * number for 8 unsigned bytes.
HWY_INLINE void scaled_bytes(uint64_t bytes, float factor, float* out) {
  const hn::CappedTag<float, kChunkGroups> d;
  const hn::Rebind<int32_t, decltype(d)> d32;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  HWY_ALIGN uint8_t numbers[kChunkGroups];
  std::memcpy(numbers, &bytes, sizeof numbers);
  for (size_t i = 0; i < kChunkGroups; i += hn::Lanes(d)) {
    const auto wide = hn::PromoteTo(d32, load_bits(d8, numbers + i));
    hn::StoreU(hn::Mul(hn::ConvertTo(d, wide), hn::Set(d, factor)), d, out + i);
  }
}

// Widens the scales of 16 halves from signed bytes.
HWY_INLINE void load_half_scales(const uint8_t* p, BlockChunk& c) {
  const hn::CappedTag<int16_t, 16> d;
  const hn::Rebind<int8_t, decltype(d)> d8;
  for (size_t i = 0; i < 16; i += hn::Lanes(d)) {
    hn::StoreU(hn::PromoteTo(d, load_bits(d8, p + i)), d, c.half + i);
  }
}

HWY_INLINE void fill_scale(float scale, BlockChunk& c) {
  for (float& s : c.scale) s = scale;
}

// ---- blocks of 32 elements

struct BlockOf32 {
  static constexpr size_t kElements = 32;
  static constexpr bool kHalves = false;
};

template <int kZeroCode, bool kHasMinima, bool kFifth>
struct Nibbles32 : BlockOf32 {
  static constexpr size_t kHead = kHasMinima ? 4 : 2;
  static constexpr size_t kBytes = kHead + (kFifth ? 4 : 0) + 16;
  static constexpr bool kSigned = false, kMinima = kHasMinima;
  static constexpr int kZero = kZeroCode, kMaxCode = kFifth ? 31 : 15;

  template <class N>
  static HWY_INLINE void unpack(const uint8_t* p, N n, BlockChunk& c) {
    load_halves(p, kBytes, n, c.scale);
    if constexpr (kMinima) load_halves(p + 2, kBytes, n, c.minimum[0]);
    for (size_t b = 0; b < n; ++b, p += kBytes) {
      constexpr Nibble kKind = kFifth ? Nibble::kFifth : Nibble::kPlain;
      nibbles_of_16<kKind>(p + kBytes - 16, p + kHead, c.codes + 32 * b);
    }
  }
};
using Q4_0 = Nibbles32<8, false, false>;
using Q4_1 = Nibbles32<0, true, false>;
using Q5_0 = Nibbles32<16, false, true>;
using Q5_1 = Nibbles32<0, true, true>;

struct Q8_0 : BlockOf32 {
  static constexpr size_t kBytes = 34;
  static constexpr bool kSigned = true, kMinima = false;
  static constexpr int kZero = 0, kMaxCode = 128;

  template <class N>
  static HWY_INLINE void unpack(const uint8_t* p, N n, BlockChunk& c) {
    load_halves(p, kBytes, n, c.scale);
    const Codes d;
    for (size_t b = 0; b < n; ++b) {
      for (size_t i = 0; i < kElements; i += hn::Lanes(d)) {
        hn::StoreU(load_bits(d, p + kBytes * b + 2 + i), d, c.codes + kElements * b + i);
      }
    }
  }
};

struct IQ4NL : BlockOf32 {
  static constexpr size_t kBytes = 18;
  static constexpr bool kSigned = true, kMinima = false;
  static constexpr int kZero = 0, kMaxCode = 128;

  template <class N>
  static HWY_INLINE void unpack(const uint8_t* p, N n, BlockChunk& c) {
    load_halves(p, kBytes, n, c.scale);
    for (size_t b = 0; b < n; ++b)
      nibbles_of_16<Nibble::kIq4>(p + kBytes * b + 2, nullptr, c.codes + 32 * b);
  }
};

struct MXFP4 : BlockOf32 {
  static constexpr size_t kBytes = 17;
  static constexpr bool kSigned = true, kMinima = false;
  static constexpr int kZero = 0, kMaxCode = 12;

  template <class N>
  static HWY_INLINE void unpack(const uint8_t* p, N n, BlockChunk& c) {
    std::memset(c.scale, 0, sizeof c.scale);
    for (size_t b = 0; b < n; ++b, p += kBytes) {
      // 2^(e - 128), half of what the exponent means, because the codes are doubled
      const uint32_t bits = p[0] < 2 ? 0x00200000u << p[0] : (p[0] - 1u) << 23;
      std::memcpy(&c.scale[b], &bits, sizeof bits);
      nibbles_of_16<Nibble::kMxfp4>(p + 1, nullptr, c.codes + 32 * b);
    }
  }
};

// ---- blocks of 256 elements

struct BlockOf256 {
  static constexpr size_t kElements = 256;
};

template <bool kFifth>
struct NibblesK : BlockOf256 {
  static constexpr size_t kBytes = kFifth ? 176 : 144;
  static constexpr bool kSigned = false, kMinima = true, kHalves = false;
  static constexpr int kZero = 0, kMaxCode = kFifth ? 31 : 15;

  template <class N>
  static HWY_INLINE void unpack(const uint8_t* p, N, BlockChunk& c) {
    uint32_t words[3];
    std::memcpy(words, p + 4, sizeof words);
    const auto both = [](uint32_t low, uint32_t high) { return low | uint64_t{high} << 32; };
    const uint64_t scales =
        both(words[0] & 0x3f3f3f3f, (words[2] & 0x0f0f0f0f) | (words[0] >> 6 & 0x03030303) << 4);
    const uint64_t minima = both(words[1] & 0x3f3f3f3f,
                                 (words[2] >> 4 & 0x0f0f0f0f) | (words[1] >> 6 & 0x03030303) << 4);
    scaled_bytes(scales, half_at(p), c.scale);
    scaled_bytes(minima, -half_at(p + 2), c.minimum[0]);
    const Codes d;
    const uint8_t *low = p + kBytes - 128, *fifth = p + 16;
    for (size_t i = 0; i < 32; i += hn::Lanes(d)) {
      VCodes flags = hn::Zero(d);
      if constexpr (kFifth) flags = load_bits(d, fifth + i);
      for (size_t pair = 0; pair < 4; ++pair) {
        const VCodes v = load_bits(d, low + 32 * pair + i);
        VCodes a = hn::And(v, hn::Set(d, uint8_t{15})), b = hn::ShiftRight<4>(v);
        if constexpr (kFifth) {
          a = hn::Or(a, bit_where(flags, static_cast<uint8_t>(1 << 2 * pair), 16));
          b = hn::Or(b, bit_where(flags, static_cast<uint8_t>(2 << 2 * pair), 16));
        }
        hn::StoreU(a, d, c.codes + 64 * pair + i);
        hn::StoreU(b, d, c.codes + 64 * pair + 32 + i);
      }
    }
  }
};
using Q4K = NibblesK<false>;
using Q5K = NibblesK<true>;

struct Q6K : BlockOf256 {
  static constexpr size_t kBytes = 210;
  static constexpr bool kSigned = false, kMinima = false, kHalves = true;
  static constexpr int kZero = 32, kMaxCode = 63;

  template <class N>
  static HWY_INLINE void unpack(const uint8_t* p, N, BlockChunk& c) {
    fill_scale(half_at(p + 208), c);
    load_half_scales(p + 192, c);
    const Codes d;
    const auto fifteen = hn::Set(d, uint8_t{15});
    for (size_t i = 0; i < 64; i += hn::Lanes(d)) {
      // 128 elements, of which those of 4 groups of 32 share the bytes of their high bits
      const size_t h = i / 32, at = i % 32;
      uint8_t* codes = c.codes + 128 * h + at;
      const VCodes a = load_bits(d, p + 64 * h + at), b = load_bits(d, p + 64 * h + 32 + at);
      const VCodes high = load_bits(d, p + 128 + 32 * h + at);
      const VCodes low[4] = {hn::And(a, fifteen), hn::And(b, fifteen), hn::ShiftRight<4>(a),
                             hn::ShiftRight<4>(b)};
      for (size_t g = 0; g < 4; ++g) {
        const VCodes top = hn::ShiftLeft<4>(two_bits_at(high, 2 * g));
        hn::StoreU(hn::Or(low[g], top), d, codes + 32 * g);
      }
    }
  }
};

struct Q3K : BlockOf256 {
  static constexpr size_t kBytes = 110;
  static constexpr bool kSigned = false, kMinima = false, kHalves = true;
  static constexpr int kZero = 4, kMaxCode = 7;

  template <class N>
  static HWY_INLINE void unpack(const uint8_t* p, N, BlockChunk& c) {
    fill_scale(half_at(p + 108), c);
    uint32_t words[3];
    std::memcpy(words, p + 96, sizeof words);
    uint32_t scales[4];
    for (size_t i = 0; i < 4; ++i) {
      scales[i] = (words[i % 2] >> (i / 2 * 4) & 0x0f0f0f0f) | (words[2] >> 2 * i & 0x03030303)
                                                                   << 4;
    }
    load_half_scales(reinterpret_cast<const uint8_t*>(scales), c);
    for (int16_t& half : c.half) half = static_cast<int16_t>(half - 32);
    const Codes d;
    for (size_t i = 0; i < 32; i += hn::Lanes(d)) {
      const VCodes third = load_bits(d, p + i);
      for (size_t g = 0; g < kChunkGroups; ++g) {
        const VCodes low = two_bits_at(load_bits(d, p + 32 + g / 4 * 32 + i), 2 * (g % 4));
        const VCodes top = bit_where(third, static_cast<uint8_t>(1 << g), 4);
        hn::StoreU(hn::Or(low, top), d, c.codes + 32 * g + i);
      }
    }
  }
};

struct Q2K : BlockOf256 {
  static constexpr size_t kBytes = 84;
  static constexpr bool kSigned = false, kMinima = true, kHalves = true;
  static constexpr int kZero = 0, kMaxCode = 3;

  template <class N>
  static HWY_INLINE void unpack(const uint8_t* p, N, BlockChunk& c) {
    fill_scale(half_at(p + 80), c);
    uint64_t words[2], scales[2], minima[2] = {0, 0};
    std::memcpy(words, p, sizeof words);
    for (size_t i = 0; i < 2; ++i) scales[i] = words[i] & 0x0f0f0f0f0f0f0f0f;
    load_half_scales(reinterpret_cast<const uint8_t*>(scales), c);
    for (size_t g = 0; g < 16; ++g) minima[g % 2] |= uint64_t{p[g]} >> 4 << (g / 2 * 8);
    scaled_bytes(minima[0], -half_at(p + 82), c.minimum[0]);
    scaled_bytes(minima[1], -half_at(p + 82), c.minimum[1]);
    const Codes d;
    for (size_t i = 0; i < 32; i += hn::Lanes(d)) {
      for (size_t g = 0; g < kChunkGroups; ++g) {
        const VCodes low = two_bits_at(load_bits(d, p + 16 + g / 4 * 32 + i), 2 * (g % 4));
        hn::StoreU(low, d, c.codes + 32 * g + i);
      }
    }
  }
};

struct IQ4XS : BlockOf256 {
  static constexpr size_t kBytes = 136;
  static constexpr bool kSigned = true, kMinima = false, kHalves = false;
  static constexpr int kZero = 0, kMaxCode = 128;

  template <class N>
  static HWY_INLINE void unpack(const uint8_t* p, N, BlockChunk& c) {
    const float d = half_at(p);
    for (size_t g = 0; g < kChunkGroups; ++g) {
      const int low = p[4 + g / 2] >> 4 * (g % 2) & 15;
      const int high = p[2 + g / 4] >> 2 * (g % 4) & 3;
      c.scale[g] = d * static_cast<float>((low | high << 4) - 32);
      nibbles_of_16<Nibble::kIq4>(p + 8 + 16 * g, nullptr, c.codes + 32 * g);
    }
  }
};

// Calls use.template operator()<Type>() with the type.
template <class Use>
HWY_INLINE void with_block_type(BlockType type, const Use& use) {
  switch (type) {
    case BlockType::kQ4_0:
      return use.template operator()<Q4_0>();
    case BlockType::kQ4_1:
      return use.template operator()<Q4_1>();
    case BlockType::kQ5_0:
      return use.template operator()<Q5_0>();
    case BlockType::kQ5_1:
      return use.template operator()<Q5_1>();
    case BlockType::kQ8_0:
      return use.template operator()<Q8_0>();
    case BlockType::kQ2K:
      return use.template operator()<Q2K>();
    case BlockType::kQ3K:
      return use.template operator()<Q3K>();
    case BlockType::kQ4K:
      return use.template operator()<Q4K>();
    case BlockType::kQ5K:
      return use.template operator()<Q5K>();
    case BlockType::kQ6K:
      return use.template operator()<Q6K>();
    case BlockType::kIQ4NL:
      return use.template operator()<IQ4NL>();
    case BlockType::kIQ4XS:
      return use.template operator()<IQ4XS>();
    case BlockType::kMXFP4:
      return use.template operator()<MXFP4>();
  }
}

}  // namespace FERRY_BLOCK_NAMESPACE
}  // namespace ferry::kernels
FERRY_BLOCK_AFTER();

#endif  // FERRY_BLOCK_TYPES_INL_H_
