// Products of a few rows of activations, more than those of `few4` and `few8`, with AVX-512 and
// VNNI. Two rows of the matrix at a time are read in place and multiplied with up to 8 rows: so few
// do not pay for the copy of a tile (quantized_many-inl.h). Lane 2 i + r of a vector of results has
// row i of the activations and row r of the two.

namespace ferry::kernels {
namespace {

constexpr size_t kMostAtOnce = 8;
// A tile is faster with more rows. With 8 bits, a second pass reads its two rows from the first
// cache.
constexpr size_t kMostSeveral4 = kMostAtOnce, kMostSeveral8 = 2 * kMostAtOnce;

// Columns that are multiplied at a time, for each number of bits of the codes.
constexpr size_t kStep4 = 256, kStep8 = 64;
// Bytes of a step of one row: codes of 256 columns in the order of split_codes() and the offsets of
// their sums, or codes of 64 columns.
constexpr size_t kStepBytes4 = kStep4 + 64, kStepBytes8 = kStep8;

// kM rows of activations, the steps of all of them side by side. The last row is repeated in place
// of missing rows.
template <size_t kM>
struct SeveralRows {
  const int8_t* steps;
  float* out[kM];
  __m512 inverse_scales;
  __m512i zero_points, excess;  // `excess` is what codes + 128 add to the products

  static size_t floats(const CodedMatrix& m, const Activations& x) {
    const size_t padded = padded_columns(x.columns);
    return kM * (m.bits == 4 ? padded / kStep4 * kStepBytes4 : padded) / sizeof(float);
  }

  // Takes rows from `first` on, and uses `memory` of floats().
  void set(const CodedProduct& p, const Activations& x, size_t first, float* memory) {
    steps = reinterpret_cast<const int8_t*>(memory);
    alignas(64) float scales[16] = {};
    alignas(64) int32_t zeros[16] = {}, sums[16] = {};
    for (size_t i = 0; i < kM; ++i) {
      const size_t index = first + i < x.rows ? first + i : x.rows - 1;
      const ActivationRow row = x.row(index);
      out[i] = p.out + index * static_cast<size_t>(p.matrix->rows);
      const ActivationRow::Head& head = row.head();
      for (size_t r = 2 * i; r < 2 * i + 2; ++r) {
        scales[r] = head.row.inverse_scale, zeros[r] = head.row.zero_point;
        sums[r] = 128 * head.sum;
      }
      auto* to = reinterpret_cast<std::byte*>(memory);
      p.matrix->bits == 4 ? copy_steps4(row, to + i * kStepBytes4)
                          : copy_steps8(row, to + i * kStepBytes8);
    }
    inverse_scales = _mm512_load_ps(scales);
    zero_points = _mm512_load_si512(zeros), excess = _mm512_load_si512(sums);
  }

  void store(__m512 results, size_t n, size_t count) const {
    alignas(64) float lanes[16];
    _mm512_store_ps(lanes, results);
    if (count == 2) {
      for (size_t i = 0; i < kM; ++i) __builtin_memcpy(out[i] + n, lanes + 2 * i, 8);
    } else {
      for (size_t i = 0; i < kM; ++i) out[i][n] = lanes[2 * i];
    }
  }

 private:
  static void copy_steps4(const ActivationRow& row, std::byte* to) {
    const __m512i order = _mm512_setr_epi32(0, 4, 0, 4, 1, 5, 1, 5, 2, 6, 2, 6, 3, 7, 3, 7);
    for (size_t k = 0; k < row.padded; k += kStep4, to += kM * kStepBytes4) {
      __builtin_memcpy(to, row.split_codes() + k, kStep4);
      const __m256i offsets = load256(row.block_offsets() + k / kBlockColumns);
      V512::store(to + kStep4, _mm512_permutexvar_epi32(order, _mm512_castsi256_si512(offsets)));
    }
  }
  static void copy_steps8(const ActivationRow& row, std::byte* to) {
    for (size_t k = 0; k < row.padded; k += kStep8, to += kM * kStepBytes8) {
      __builtin_memcpy(to, row.codes() + k, kStep8);
    }
  }
};

// Two rows of the matrix from row `n` on, or its last row twice.
struct TwoRows {
  const uint8_t* codes[2];
  const std::byte* scales[2];
  size_t n, count;
  FetchDistance ahead, scales_ahead;  // to the rows that are fetched meanwhile

  TwoRows(const CodedMatrix& m, size_t row, size_t end, FetchDistance least)
      : n(row), count(end - row < 2 ? 1 : 2) {
    for (size_t r = 0; r < 2; ++r) {
      codes[r] = row_codes(m, n + r % count), scales[r] = row_scales(m, n + r % count);
    }
    const size_t bytes = 2 * row_bytes(m), pairs = (least.bytes + bytes - 1) / bytes;
    ahead = {pairs * bytes, least.into_second};
    scales_ahead = {2 * pairs * Groups(m).count * scale_bytes(m), least.into_second};
  }

  // Returns the values of both rows in turn, or 0 without values.
  __m512i values(const void* of_matrix) const {
    int32_t two[2] = {};
    if (of_matrix != nullptr) {
      __builtin_memcpy(two, static_cast<const std::byte*>(of_matrix) + 4 * n, 4 * count);
    }
    return _mm512_set1_epi64(
        static_cast<int64_t>(static_cast<uint32_t>(two[0]) |
                             static_cast<uint64_t>(static_cast<uint32_t>(two[1])) << 32));
  }
  __m512 floats(const float* of_matrix) const { return _mm512_castsi512_ps(values(of_matrix)); }
};

// ---- Codes of 4 bits in groups of 32 columns

// The codes of 256 columns of two rows. Vector v of a row has columns 128 v to 128 v + 127.
struct CodesOf256 {
  __m512i low[2][2], high[2][2];

  void set(size_t r, size_t v, __m512i bytes) {
    const __m512i mask = _mm512_set1_epi8(15);
    low[r][v] = _mm512_and_si512(bytes, mask);
    high[r][v] = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), mask);
  }
  // Returns the products with 128 activations. Lanes 0 to 3 have the first group, and so on.
  __m512i dot(size_t r, size_t v, const int8_t* even) const {
    const __m512i sum = _mm512_dpbusd_epi32(_mm512_setzero_si512(), low[r][v], V512::load(even));
    return _mm512_dpbusd_epi32(sum, high[r][v], V512::load(even + kSplitColumns / 2));
  }
};

// Returns the sums of 8 groups of two rows. Quarter q of the result has groups q and q + 4 of the
// first row, then those of the second. Products of codes of 4 and 8 bits are small enough to be
// added in 16 bits, but for the last addition: a lane of dot() is at most 8 * 15 * 128.
template <bool kBoth>
inline __m512i group_sums(const CodesOf256& w, const int8_t* x) {
  const __m512i ones = _mm512_set1_epi16(1);
  __m512i pairs[2];
  for (size_t r = 0; r < 2; ++r) {
    const __m512i second = kBoth ? w.dot(r, 1, x + kSplitColumns) : _mm512_setzero_si512();
    pairs[r] = _mm512_madd_epi16(_mm512_packs_epi32(w.dot(r, 0, x), second), ones);
  }
  return _mm512_dpwssd_epi32(V512::load(x + kStep4), _mm512_packs_epi32(pairs[0], pairs[1]), ones);
}

// Returns the scales of 8 groups of two rows in the order of group_sums().
inline __m512 scales_in_order(__m256 first, __m256 second) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  const __m512 both = _mm512_insertf32x8(_mm512_castps256_ps512(first), second, 1);
  return _mm512_permutexvar_ps(order, both);
}

template <size_t kM, bool kBoth>
inline __attribute__((always_inline)) void add_groups(const CodesOf256& w, __m512 scales,
                                                      const int8_t* x,
                                                      __m512 (&sums)[kMostAtOnce]) {
#pragma GCC unroll 8
  for (size_t i = 0; i < kM; ++i) {
    sums[i] = V512::fma(V512::to_float(group_sums<kBoth>(w, x + i * kStepBytes4)), scales, sums[i]);
  }
}

// Adds the 8 partial sums of each row, in the order of all instruction sets.
inline __m512 add_partials(const __m512 (&sums)[kMostAtOnce]) {
  __m512 quarters[4];
  for (size_t j = 0; j < 4; ++j) {
    const __m512 a = sums[2 * j], b = sums[2 * j + 1];
    quarters[j] = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x88), _mm512_shuffle_ps(a, b, 0xdd));
  }
  __m512 halves[2];
  for (size_t j = 0; j < 2; ++j) {
    const __m512 a = quarters[2 * j], b = quarters[2 * j + 1];
    halves[j] = _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  }
  return _mm512_add_ps(_mm512_shuffle_f32x4(halves[0], halves[1], 0x88),
                       _mm512_shuffle_f32x4(halves[0], halves[1], 0xdd));
}

template <size_t kM, bool kBf16>
inline void two_rows4(const CodedProduct& p, const SeveralRows<kM>& x, const TwoRows& w) {
  constexpr size_t kScales = 8 * (kBf16 ? 2 : 4);
  __m512 sums[kMostAtOnce];
  for (size_t i = 0; i < kMostAtOnce; ++i) sums[i] = _mm512_setzero_ps();
  size_t groups = Groups(*p.matrix).count, k = 0, at = 0;
  CodesOf256 codes;
  const int8_t* steps = x.steps;
  for (; groups >= 8; groups -= 8, k += kStep4, at += kScales, steps += kM * kStepBytes4) {
    for (size_t r = 0; r < 2; ++r) {
      const uint8_t* from = w.codes[r] + k / 2;
      w.ahead.fetch(from);
      w.ahead.fetch(from + 64);
      codes.set(r, 0, load512(from));
      codes.set(r, 1, load512(from + 64));
    }
    w.scales_ahead.fetch(w.scales[0] + 2 * at);
    const __m512 scales = scales_in_order(eight_scales<kBf16>(w.scales[0] + at),
                                          eight_scales<kBf16>(w.scales[1] + at));
    add_groups<kM, true>(codes, scales, steps, sums);
  }
  if (groups > 0) {
    const size_t bytes = groups * kBlockColumns / 2, first = bytes < 64 ? bytes : 64;
    for (size_t r = 0; r < 2; ++r) {
      const uint8_t* from = w.codes[r] + k / 2;
      w.ahead.fetch(from);
      w.ahead.fetch(from + first);
      codes.set(r, 0, _mm512_maskz_loadu_epi8(Few512::first_lanes(first), from));
      if (bytes > first) {
        const __mmask64 rest = Few512::first_lanes(bytes - first);
        codes.set(r, 1, _mm512_maskz_loadu_epi8(rest, from + 64));
      }
    }
    const __m512 scales = scales_in_order(Few512::some_scales<kBf16>(w.scales[0] + at, groups),
                                          Few512::some_scales<kBf16>(w.scales[1] + at, groups));
    if (bytes > first) {
      add_groups<kM, true>(codes, scales, steps, sums);
    } else {
      add_groups<kM, false>(codes, scales, steps, sums);
    }
  }
  __m512 v = add_partials(sums);
  v = V512::sub(v, V512::mul(V512::to_float(x.zero_points), w.floats(p.sums)));
  v = V512::mul(v, x.inverse_scales);
  if (p.bias != nullptr) v = V512::add(v, w.floats(p.bias));
  x.store(v, w.n, w.count);
}

// ---- Codes of 8 bits with a scale for each row

// Adds the quarters of vectors in pairs.
inline __m512i fold_quarters(__m512i a, __m512i b) {
  return V512::add(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

// Returns the sums of the lanes of 16 vectors, in their order.
inline __m512i sums_of_16(const __m512i (&v)[16]) {
  __m512i quarters[4];
#pragma GCC unroll 4
  for (size_t j = 0; j < 4; ++j) {
    const __m512i* a = v + 4 * j;
    const __m512i first =
        V512::add(_mm512_unpacklo_epi32(a[0], a[1]), _mm512_unpackhi_epi32(a[0], a[1]));
    const __m512i second =
        V512::add(_mm512_unpacklo_epi32(a[2], a[3]), _mm512_unpackhi_epi32(a[2], a[3]));
    quarters[j] =
        V512::add(_mm512_unpacklo_epi64(first, second), _mm512_unpackhi_epi64(first, second));
  }
  return fold_quarters(fold_quarters(quarters[0], quarters[1]),
                       fold_quarters(quarters[2], quarters[3]));
}

template <size_t kM>
inline __attribute__((always_inline)) void add_codes(const __m512i (&bytes)[2], const int8_t* x,
                                                     __m512i (&sums)[16]) {
  const __m512i flip = _mm512_set1_epi8(-128);
  const __m512i a = _mm512_xor_si512(bytes[0], flip), b = _mm512_xor_si512(bytes[1], flip);
#pragma GCC unroll 8
  for (size_t i = 0; i < kM; ++i) {
    const __m512i codes = V512::load(x + i * kStepBytes8);
    sums[2 * i] = _mm512_dpbusd_epi32(sums[2 * i], a, codes);
    sums[2 * i + 1] = _mm512_dpbusd_epi32(sums[2 * i + 1], b, codes);
    V512::keep(sums[2 * i]);
    V512::keep(sums[2 * i + 1]);
  }
}

template <size_t kM>
inline void two_rows8(const CodedProduct& p, const SeveralRows<kM>& x, const TwoRows& w) {
  const auto columns = static_cast<size_t>(p.matrix->columns);
  __m512i sums[16];
#pragma GCC unroll 16
  for (size_t i = 0; i < 16; ++i) sums[i] = _mm512_setzero_si512();
  const int8_t* steps = x.steps;
  for (size_t k = 0; k < columns; k += kStep8, steps += kM * kStepBytes8) {
    const __mmask64 lanes = Few512::first_lanes(columns - k < kStep8 ? columns - k : kStep8);
    for (size_t r = 0; r < 2; ++r) w.ahead.fetch(w.codes[r] + k);
    add_codes<kM>({_mm512_maskz_loadu_epi8(lanes, w.codes[0] + k),
                   _mm512_maskz_loadu_epi8(lanes, w.codes[1] + k)},
                  steps, sums);
  }
  const __m512i sum = V512::sub(sums_of_16(sums), x.excess);
  const __m512i zero = V512::mul(x.zero_points, w.values(p.code_sums));
  __m512 v = V512::mul(V512::to_float(V512::sub(sum, zero)), x.inverse_scales);
  alignas(8) float scales[2] = {scale_at(*p.matrix, w.n), scale_at(*p.matrix, w.n + w.count - 1)};
  int64_t both;
  __builtin_memcpy(&both, scales, sizeof both);
  v = V512::mul(v, _mm512_castsi512_ps(_mm512_set1_epi64(both)));
  if (p.bias != nullptr) v = V512::add(v, w.floats(p.bias));
  x.store(v, w.n, w.count);
}

template <size_t kM>
inline void two_rows(const CodedProduct& p, const SeveralRows<kM>& x, const TwoRows& w) {
  if (p.matrix->bits == 8) return two_rows8<kM>(p, x, w);
  if (p.matrix->scale_dtype == DType::kBF16) return two_rows4<kM, true>(p, x, w);
  two_rows4<kM, false>(p, x, w);
}

template <size_t kM>
void several_rows(const CodedProduct& p, const Activations& x, size_t begin, size_t end) {
  const CodedMatrix& m = *p.matrix;
  const size_t passes = (x.rows + kM - 1) / kM, floats = SeveralRows<kM>::floats(m, x);
  const Scratch memory(passes * floats);
  SeveralRows<kM> rows[kMostSeveral8 / kMostAtOnce];
  for (size_t i = 0; i < passes; ++i) rows[i].set(p, x, i * kM, memory.data() + i * floats);
  const FetchAhead& distances = fetch_ahead(x.rows);
  const FetchDistance ahead = m.bits == 4 ? distances.nibbles : distances.stream;
  for (size_t n = begin; n < end; n += 2) {
    const TwoRows two(m, n, end, ahead);
    for (size_t i = 0; i < passes; ++i) two_rows(p, rows[i], two);
  }
}

// Implements InstructionSet::several.
inline void several(const CodedProduct& p, const Activations& x, size_t begin, size_t end) {
  const size_t passes = (x.rows + kMostAtOnce - 1) / kMostAtOnce;
  const size_t rows = (x.rows + passes - 1) / passes;
  if (rows > 6) return several_rows<8>(p, x, begin, end);
  if (rows > 4) return several_rows<6>(p, x, begin, end);
  if (rows > 2) return several_rows<4>(p, x, begin, end);
  several_rows<2>(p, x, begin, end);
}

}  // namespace
}  // namespace ferry::kernels
