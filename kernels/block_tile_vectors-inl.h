// Unpacks a block of each of 16 rows at once into a tile, for AVX-512: packed bytes of the rows are
// transposed first and unpacked then, so that a vector of packed bytes gives several of codes. On a
// Zen 4 this takes half the time of unpacking row by row and transposing codes. The numbers are
// those of block_types-inl.h.

// clang-format off
#if defined(FERRY_BLOCK_TILE_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef FERRY_BLOCK_TILE_VECTORS_INL_H_
#undef FERRY_BLOCK_TILE_VECTORS_INL_H_
#else
#define FERRY_BLOCK_TILE_VECTORS_INL_H_
#endif
// clang-format on

#include "kernels/block_vectors-inl.h"

#if FERRY_BLOCK_VNNI == 512
FERRY_BLOCK_BEFORE();
namespace ferry::kernels {
namespace FERRY_BLOCK_NAMESPACE {

// A block of each row of a tile. Vectors have 32 bits of each row.
struct BlockOfRows {
  const uint8_t* first;
  size_t row_bytes;

  // Returns word i of the 16 bytes from `offset` on as vector i.
  HWY_INLINE void words(size_t offset, __m512i (&out)[4]) const {
    const uint8_t *p = first + offset, *q = p + 4 * row_bytes;
    const uint8_t *r = p + 8 * row_bytes, *s = q + 8 * row_bytes;
    __m512i rows[4];  // lane `l` of rows[i] has the bytes of row 4 l + i
    for (size_t i = 0; i < 4; ++i) {
      rows[i] = _mm512_castsi128_si512(bytes(p, i));
      rows[i] = _mm512_mask_broadcast_i32x4(rows[i], 0x00f0, bytes(q, i));
      rows[i] = _mm512_mask_broadcast_i32x4(rows[i], 0x0f00, bytes(r, i));
      rows[i] = _mm512_mask_broadcast_i32x4(rows[i], 0xf000, bytes(s, i));
    }
    const __m512i a = _mm512_unpacklo_epi32(rows[0], rows[1]);
    const __m512i b = _mm512_unpacklo_epi32(rows[2], rows[3]);
    const __m512i c = _mm512_unpackhi_epi32(rows[0], rows[1]);
    const __m512i d = _mm512_unpackhi_epi32(rows[2], rows[3]);
    out[0] = _mm512_unpacklo_epi64(a, b);
    out[1] = _mm512_unpackhi_epi64(a, b);
    out[2] = _mm512_unpacklo_epi64(c, d);
    out[3] = _mm512_unpackhi_epi64(c, d);
  }

 private:
  HWY_INLINE __m128i bytes(const uint8_t* p, size_t row) const {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + row * row_bytes));
  }
};

// Widens the f16 in the low half of each word.
HWY_INLINE __m512 low_f16(__m512i words) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words)); }
HWY_INLINE __m512 high_f16(__m512i words) { return low_f16(_mm512_srli_epi32(words, 16)); }

HWY_INLINE __m512i every_byte(int8_t x) { return _mm512_set1_epi8(x); }
HWY_INLINE __m512i low_nibbles(__m512i v) { return _mm512_and_si512(v, every_byte(15)); }
HWY_INLINE __m512i high_nibbles(__m512i v) { return low_nibbles(_mm512_srli_epi16(v, 4)); }

// Run `run` of four columns of a group.
HWY_INLINE void put_codes(const BlockTile& t, size_t group, size_t run, __m512i codes) {
  _mm512_store_si512(t.codes + (group * kGroupColumns + 4 * run) * kTileRows, codes);
}
HWY_INLINE void put_scales(const BlockTile& t, size_t group, __m512 scales) {
  _mm512_store_ps(t.scales + group * kTileRows, scales);
}
// `place` counts groups, or halves of groups for a type that has them.
HWY_INLINE void put_offsets(const BlockTile& t, size_t place, __m512 offsets) {
  _mm512_store_ps(t.offsets + place * kTileRows, offsets);
}

// Puts a block of 16 rows into a tile from group `group` on. Types without a specialization are
// unpacked row by row.
template <class T>
struct RowsOf {
  static constexpr bool kAtOnce = false;
};

template <int kZero, bool kMinima, bool kFifth>
struct RowsOf<Nibbles32<kZero, kMinima, kFifth>> {
  static constexpr bool kAtOnce = true;
  using T = Nibbles32<kZero, kMinima, kFifth>;

  static HWY_INLINE void put(const BlockOfRows& rows, const BlockTile& t, size_t group) {
    __m512i head[4], nibbles[4];
    rows.words(0, head);
    rows.words(T::kBytes - 16, nibbles);
    const __m512 scale = low_f16(head[0]);
    __m512 offset = kMinima ? high_f16(head[0]) : _mm512_setzero_ps();
    if constexpr (kZero != 0) offset = fused(scale, every(-static_cast<float>(kZero)), offset);
    put_scales(t, group, scale);
    put_offsets(t, group, offset);
    __m512i fifth = head[1];
    if constexpr (!kMinima) {
      fifth = _mm512_or_si512(_mm512_srli_epi32(head[0], 16), _mm512_slli_epi32(head[1], 16));
    }
    for (size_t i = 0; i < 4; ++i) {
      put_codes(t, group, i, with_fifth(low_nibbles(nibbles[i]), fifth, i));
      put_codes(t, group, 4 + i, with_fifth(high_nibbles(nibbles[i]), fifth, 4 + i));
    }
  }

 private:
  // Adds 16 to the codes of run `run` whose bits in `fifth` are set: bit 4 run + j for code j.
  static HWY_INLINE __m512i with_fifth(__m512i codes, __m512i fifth, size_t run) {
    if constexpr (!kFifth) return codes;
    const __m128i words = _mm_setr_epi32(0x00000000, 0x04040404, 0x08080808, 0x0c0c0c0c);
    const __m512i byte =
        _mm512_add_epi8(_mm512_broadcast_i32x4(words), every_byte(static_cast<int8_t>(run / 2)));
    const __m512i bits =
        _mm512_set1_epi32(run % 2 == 0 ? 0x08040201 : static_cast<int>(0x80402010));
    const __mmask64 set = _mm512_test_epi8_mask(_mm512_shuffle_epi8(fifth, byte), bits);
    return _mm512_mask_add_epi8(codes, set, codes, every_byte(16));
  }
};

HWY_INLINE __m512i shifted_signs(__m512i codes) {
  return _mm512_xor_si512(codes, _mm512_set1_epi32(static_cast<int>(kShiftedSigns)));
}

template <>
struct RowsOf<Q8_0> {
  static constexpr bool kAtOnce = true;

  static HWY_INLINE void put(const BlockOfRows& rows, const BlockTile& t, size_t group) {
    __m512i words[4];
    rows.words(0, words);
    put_scales(t, group, low_f16(words[0]));
    for (size_t half = 0; half < 2; ++half) {
      rows.words(2 + 16 * half, words);
      for (size_t i = 0; i < 4; ++i) put_codes(t, group, 4 * half + i, shifted_signs(words[i]));
    }
  }
};

// Puts the 32 codes that the nibbles from byte `offset` of the rows stand for.
template <Nibble kKind>
HWY_INLINE void put_looked_up(const BlockOfRows& rows, size_t offset, const BlockTile& t,
                              size_t group) {
  const __m512i table =
      _mm512_broadcast_i32x4(_mm_load_si128(reinterpret_cast<const __m128i*>(kNibbleTable<kKind>)));
  __m512i words[4];
  rows.words(offset, words);
  for (size_t i = 0; i < 4; ++i) {
    const auto code = [&](__m512i nibbles) FERRY_BLOCK_ATTR {
      return shifted_signs(_mm512_shuffle_epi8(table, nibbles));
    };
    put_codes(t, group, i, code(low_nibbles(words[i])));
    put_codes(t, group, 4 + i, code(high_nibbles(words[i])));
  }
}

template <>
struct RowsOf<IQ4NL> {
  static constexpr bool kAtOnce = true;

  static HWY_INLINE void put(const BlockOfRows& rows, const BlockTile& t, size_t group) {
    __m512i head[4];
    rows.words(0, head);
    put_scales(t, group, low_f16(head[0]));
    put_looked_up<Nibble::kIq4>(rows, 2, t, group);
  }
};

// The f16 of scales and minima, and 6-bit factors of both for 8 groups, are the first 16 bytes.
template <bool kFifth>
struct RowsOf<NibblesK<kFifth>> {
  static constexpr bool kAtOnce = true;

  static HWY_INLINE void put(const BlockOfRows& rows, const BlockTile& t, size_t group) {
    __m512i head[4];
    rows.words(0, head);
    const __m512 sign = every(-0.0F);
    put_factors(factors(head[1], head[3]), low_f16(head[0]), t.scales + group * kTileRows);
    put_factors(factors(head[2], _mm512_srli_epi32(head[3], 4)),
                _mm512_xor_ps(high_f16(head[0]), sign), t.offsets + group * kTileRows);
    for (size_t half = 0; half < 2; ++half) {
      __m512i fifth[4] = {};
      if constexpr (kFifth) rows.words(16 + 16 * half, fifth);
      for (size_t pair = 0; pair < 4; ++pair) {
        __m512i words[4];
        rows.words(NibblesK<kFifth>::kBytes - 128 + 32 * pair + 16 * half, words);
        for (size_t i = 0; i < 4; ++i) {
          __m512i low = low_nibbles(words[i]), high = high_nibbles(words[i]);
          if constexpr (kFifth) {
            low = with_bit(low, fifth[i], 2 * pair);
            high = with_bit(high, fifth[i], 2 * pair + 1);
          }
          put_codes(t, group + 2 * pair, 4 * half + i, low);
          put_codes(t, group + 2 * pair + 1, 4 * half + i, high);
        }
      }
    }
  }

 private:
  struct Factors {
    __m512i first, last;  // a byte for each of groups 0 to 3, and 4 to 7
  };
  static HWY_INLINE Factors factors(__m512i low, __m512i high) {
    const __m512i top = _mm512_and_si512(_mm512_srli_epi32(low, 6), every_byte(3));
    return {_mm512_and_si512(low, every_byte(63)),
            _mm512_or_si512(low_nibbles(high), _mm512_slli_epi32(top, 4))};
  }
  static HWY_INLINE void put_factors(const Factors& f, __m512 unit, float* out) {
    for (size_t g = 0; g < kChunkGroups; ++g) {
      const __m512i bytes = _mm512_srlv_epi32(g < 4 ? f.first : f.last,
                                              _mm512_set1_epi32(static_cast<int>(8 * (g % 4))));
      const __m512i factor = _mm512_and_si512(bytes, _mm512_set1_epi32(255));
      _mm512_store_ps(out + g * kTileRows, times(as_floats(factor), unit));
    }
  }
  // Adds 16 to the codes whose byte of `bits` has bit `bit`.
  static HWY_INLINE __m512i with_bit(__m512i codes, __m512i bits, size_t bit) {
    const __mmask64 set = _mm512_test_epi8_mask(bits, every_byte(static_cast<int8_t>(1 << bit)));
    return _mm512_mask_add_epi8(codes, set, codes, every_byte(16));
  }
};

template <>
struct RowsOf<Q6K> {
  static constexpr bool kAtOnce = true;

  static HWY_INLINE void put(const BlockOfRows& rows, const BlockTile& t, size_t group) {
    __m512i last[4], halves[4];
    rows.words(194, last);  // bytes 208 and 209 are the f16 of scales
    rows.words(192, halves);
    const __m512 unit = high_f16(last[3]);
    for (size_t g = 0; g < kChunkGroups; ++g) {
      put_scales(t, group + g, unit);
      for (size_t h = 0; h < 2; ++h) {
        const auto above = static_cast<unsigned>(24 - 8 * (g % 2 * 2 + h));
        const __m512i factor = _mm512_srai_epi32(_mm512_slli_epi32(halves[g / 2], above), 24);
        put_offsets(t, 2 * (group + g) + h,
                    fused(times(unit, as_floats(factor)), every(-32.0F), every(0.0F)));
        const __m512i twice =
            _mm512_mask_mov_epi16(_mm512_slli_epi32(factor, 16), 0x55555555, factor);
        _mm512_store_si512(t.factors + (2 * (group + g) + h) * 2 * kTileRows, twice);
      }
    }
    // 128 columns, of which the 4 groups share the bytes of their high bits
    for (size_t part = 0; part < 4; ++part) {
      const size_t first = group + part / 2 * 4, run = part % 2 * 4;
      const size_t low = part / 2 * 64 + part % 2 * 16;
      __m512i a[4], b[4], high[4];
      rows.words(low, a);
      rows.words(low + 32, b);
      rows.words(128 + 16 * part, high);
      for (size_t i = 0; i < 4; ++i) {
        const auto put = [&](size_t g, __m512i nibbles) FERRY_BLOCK_ATTR {
          const __m512i bits =
              _mm512_srlv_epi32(high[i], _mm512_set1_epi32(static_cast<int>(2 * g)));
          const __m512i top = _mm512_slli_epi32(_mm512_and_si512(bits, every_byte(3)), 4);
          put_codes(t, first + g, run + i, _mm512_or_si512(nibbles, top));
        };
        put(0, low_nibbles(a[i]));
        put(1, low_nibbles(b[i]));
        put(2, high_nibbles(a[i]));
        put(3, high_nibbles(b[i]));
      }
    }
  }
};

}  // namespace FERRY_BLOCK_NAMESPACE
}  // namespace ferry::kernels
FERRY_BLOCK_AFTER();
#endif  // FERRY_BLOCK_VNNI

#endif  // FERRY_BLOCK_TILE_VECTORS_INL_H_
