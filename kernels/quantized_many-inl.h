// Products of many rows of activations, for one instruction set. A tile of rows of the matrix is
// copied with one lane for each row and one byte for each code (two bytes with kPairs and 8 bits).
// Then the tile is multiplied with a few rows of activations at a time. Files include it like
// quantized_x86-inl.h. A `Dot` has these members:
//   Wide, kPairs, kOffset  the codes of the tile are those of the matrix + kOffset
//   kActs                  rows of activations that are multiplied at a time
//   kCopied                rows that copy4, copy8 and copy_scales copy into the tile at a time
//   codes4                 the codes of a row of activations in the order of columns of copy4
//   add_block, settle      in place of `dot`: add products of 32 columns to sums in an order of its
//                          own, and put the sums in order

namespace ferry::kernels {
namespace {

template <class Dot>
constexpr size_t kTileRows = 2 * Dot::Wide::kLanes;

// Rows [n, n + kTileRows) of a product. The last row is repeated in place of missing rows.
struct Tile {
  const std::byte* codes;  // [columns / 4][rows][4], or [columns / 2][rows][2] of 16 bits
  const float* scales;     // [groups][rows]
  const float* sums;       // [rows]
  const int32_t* code_sums;
  const float* bias;
};

template <class Dot>
struct TileBuffer {
  std::byte* codes;
  float *scales, *sums, *bias;
  int32_t* code_sums;

  static constexpr size_t kRows = kTileRows<Dot>;
  static size_t floats(const CodedMatrix& m) {
    const size_t bytes = Dot::kPairs && m.bits == 8 ? 2 : 1;
    return padded_columns(static_cast<size_t>(m.columns)) * kRows * bytes / sizeof(float) +
           kRows * (Groups(m).count + 3);
  }
  TileBuffer(const CodedMatrix& m, float* memory) {
    sums = memory;
    bias = sums + kRows;
    code_sums = reinterpret_cast<int32_t*>(bias + kRows);
    scales = bias + 2 * kRows;
    codes = reinterpret_cast<std::byte*>(scales + kRows * Groups(m).count);
  }
};

inline size_t clamped(size_t n, size_t rows) { return n < rows ? n : rows - 1; }

// Copies kCount values from `from[n]` on, of which there are `rows`. Behind the last one it is
// repeated. Without values they are 0.
template <size_t kCount, class T>
inline void copy_values(const T* from, size_t n, size_t rows, T* to) {
  if (from == nullptr) {
    __builtin_memset(to, 0, kCount * sizeof(T));
  } else if (n + kCount <= rows) {
    __builtin_memcpy(to, from + n, kCount * sizeof(T));
  } else {
    for (size_t r = 0; r < kCount; ++r) to[r] = from[clamped(n + r, rows)];
  }
}

template <class Dot>
inline void fill_tile(const CodedProduct& p, size_t n, size_t groups, const TileBuffer<Dot>& tile) {
  const CodedMatrix& m = *p.matrix;
  constexpr size_t kRows = kTileRows<Dot>;
  const auto matrix_rows = static_cast<size_t>(m.rows), columns = static_cast<size_t>(m.columns);
  copy_values<kRows>(p.sums, n, matrix_rows, tile.sums);
  copy_values<kRows>(p.code_sums, n, matrix_rows, tile.code_sums);
  copy_values<kRows>(p.bias, n, matrix_rows, tile.bias);
  const size_t codes_of_row = row_bytes(m), scales_of_row = groups * scale_bytes(m);
  const uint8_t* const codes = row_codes(m, 0);
  for (size_t r = 0; r < kRows; r += Dot::kCopied) {
    const uint8_t* rows[Dot::kCopied];
    const std::byte* scales[Dot::kCopied];
    for (size_t i = 0; i < Dot::kCopied; ++i) {
      const size_t row = clamped(n + r + i, matrix_rows);
      rows[i] = codes + row * codes_of_row;
      scales[i] = m.scales + row * scales_of_row;
    }
    Dot::copy_scales(m, scales, kRows, tile.scales + r);
    if (m.bits == 4) {
      Dot::copy4(rows, columns, kRows, tile.codes + 4 * r);
    } else {
      Dot::copy8(rows, columns, kRows, tile.codes + 4 * r);
    }
  }
}

template <class Dot, size_t kM>
using Sums = typename Dot::Wide::Int[kM][2];

template <class Dot, size_t kM>
struct ActivationRows {
  const int8_t* codes[kM];  // in the order of the tile
  const int16_t* wide_codes[kM];
  const int32_t* offsets[kM];

  ActivationRows(const Activations& x, size_t first, int bits) {
    for (size_t i = 0; i < kM; ++i) {
      const ActivationRow row = x.row(first + i);
      codes[i] = bits == 4 ? Dot::codes4(row) : row.codes();
      wide_codes[i] = row.wide_codes(), offsets[i] = row.block_offsets();
    }
  }
};

template <class T>
inline int32_t load_lane(const T* p) {
  int32_t lane;
  __builtin_memcpy(&lane, p, sizeof lane);
  return lane;
}

// Computes products of 32 columns, [k, k + 32), for kM rows of activations, as sums of pairs in 16
// bits. If the codes of the tile are less than 16, 8 such pairs fit.
template <class Dot, size_t kM>
inline __attribute__((always_inline)) void pair_products(const std::byte* tile,
                                                         const ActivationRows<Dot, kM>& x, size_t k,
                                                         Sums<Dot, kM>& pairs) {
  using V = typename Dot::Wide;
  constexpr size_t kStep = 4 * kTileRows<Dot>;
#pragma GCC unroll 8
  for (size_t s = 0; s < 8; ++s) {
    const auto a = V::load(tile + s * kStep), b = V::load(tile + s * kStep + kStep / 2);
#pragma GCC unroll 8
    for (size_t i = 0; i < kM; ++i) {
      const auto lane = V::set(load_lane(x.codes[i] + k + 4 * s));
      const auto pa = V::maddubs(a, lane), pb = V::maddubs(b, lane);
      pairs[i][0] = s == 0 ? pa : V::add16(pairs[i][0], pa);
      pairs[i][1] = s == 0 ? pb : V::add16(pairs[i][1], pb);
      V::keep(pairs[i][0]);
      V::keep(pairs[i][1]);
    }
  }
}

template <class Dot>
concept OwnOrder = requires {
  &Dot::template add_block<1>;
};

template <class Dot, size_t kM>
inline __attribute__((always_inline)) void settle(Sums<Dot, kM>& sums) {
  if constexpr (OwnOrder<Dot>) Dot::template settle<kM>(sums);
}

// Adds products of columns [k, k + 32) to the sums.
template <OwnOrder Dot, size_t kM>
inline __attribute__((always_inline)) void dot_products(const std::byte* tile,
                                                        const ActivationRows<Dot, kM>& x, size_t k,
                                                        Sums<Dot, kM>& sums) {
  Dot::template add_block<kM>(tile, x.codes, k, sums);
}
template <class Dot, size_t kM>
inline __attribute__((always_inline)) void dot_products(const std::byte* tile,
                                                        const ActivationRows<Dot, kM>& x, size_t k,
                                                        Sums<Dot, kM>& sums) {
  using V = typename Dot::Wide;
  constexpr size_t kStep = 4 * kTileRows<Dot>;
#pragma GCC unroll 8
  for (size_t s = 0; s < 8; ++s) {
    const auto a = V::load(tile + s * kStep), b = V::load(tile + s * kStep + kStep / 2);
#pragma GCC unroll 8
    for (size_t i = 0; i < kM; ++i) {
      const auto lane = V::set(load_lane(x.codes[i] + k + 4 * s));
      sums[i][0] = Dot::dot(sums[i][0], a, lane);
      sums[i][1] = Dot::dot(sums[i][1], b, lane);
    }
  }
}

// Adds products of 16-bit codes to the sums.
template <class Dot, size_t kM>
inline __attribute__((always_inline)) void wide_products(const std::byte* tile,
                                                         const ActivationRows<Dot, kM>& x, size_t k,
                                                         Sums<Dot, kM>& sums) {
  using V = typename Dot::Wide;
  constexpr size_t kStep = 4 * kTileRows<Dot>;
#pragma GCC unroll 16
  for (size_t s = 0; s < 16; ++s) {
    const auto a = V::load(tile + s * kStep), b = V::load(tile + s * kStep + kStep / 2);
#pragma GCC unroll 8
    for (size_t i = 0; i < kM; ++i) {
      const auto lane = V::set(load_lane(x.wide_codes[i] + k + 2 * s));
      sums[i][0] = V::add(sums[i][0], V::madd(a, lane));
      sums[i][1] = V::add(sums[i][1], V::madd(b, lane));
      V::keep(sums[i][0]);
      V::keep(sums[i][1]);
    }
  }
}

struct ManyRows {
  const Activations* x;
  size_t i, n, rows;  // first row of activations; first row of the matrix and the number of rows
  const CodedProduct* product;
  // Rows of the matrix for the next tile and their scales, to be fetched during the products, or
  // nullptr.
  const uint8_t* next;
  const std::byte* next_scales;

  // Fetches the next `bytes` bytes of codes, a multiple of 64.
  void fetch(size_t bytes) { fetch(next, bytes); }
  void fetch_scales(size_t bytes) { fetch(next_scales, bytes); }

 private:
  // The address may lie behind the matrix, because processors ignore a fetch of unmapped memory.
  template <class T>
  static void fetch(const T*& from, size_t bytes) {
    if (from == nullptr) return;
    const auto address = reinterpret_cast<uintptr_t>(from);
    for (size_t at = 0; at < bytes; at += 64) {
      __builtin_prefetch(reinterpret_cast<const void*>(address + at), 0, 2);
    }
    from = reinterpret_cast<const T*>(address + bytes);
  }
};

template <class Dot>
inline void store_lanes(const ManyRows& a, size_t i, size_t lane, typename Dot::Wide::Float v) {
  using V = typename Dot::Wide;
  const size_t n = a.n + lane;
  if (n >= a.rows) return;
  float* out = a.product->out + (a.i + i) * a.rows + n;
  if (n + V::kLanes <= a.rows) return V::store_any(out, v);
  alignas(64) float lanes[V::kLanes];
  V::store(lanes, v);
  __builtin_memcpy(out, lanes, (a.rows - n) * sizeof(float));
}

// Adds products of columns [k, k + 32), less the offset of the codes, to the sums, which are 0 with
// kFirst.
template <class Dot, size_t kM, bool kFirst>
inline __attribute__((always_inline)) void corrected_products(const std::byte* tile,
                                                              const ActivationRows<Dot, kM>& x,
                                                              size_t k, Sums<Dot, kM>& sums) {
  using V = typename Dot::Wide;
  typename V::Int pairs[kM][2];
  if constexpr (Dot::kPairs) pair_products<Dot, kM>(tile, x, k, pairs);
#pragma GCC unroll 8
  for (size_t i = 0; i < kM; ++i) {
    const auto lane = V::set(Dot::kOffset4 == 0 ? 0 : x.offsets[i][k / kBlockColumns]);
#pragma GCC unroll 2
    for (size_t h = 0; h < 2; ++h) {
      sums[i][h] = kFirst ? lane : V::add(sums[i][h], lane);
      if constexpr (Dot::kPairs) {
        sums[i][h] = V::add(sums[i][h], V::madd(pairs[i][h], V::ones16()));
      }
    }
  }
  if constexpr (!Dot::kPairs) dot_products<Dot, kM>(tile, x, k, sums);
}

// Computes the partial sums of all groups.
template <class Dot, size_t kM>
struct Partial {
  alignas(64) float sums[kPartialSums][kM][2][Dot::Wide::kLanes];
};

template <class Dot, size_t kM>
inline void sum_groups(ManyRows a, const TileBuffer<Dot>& tile, size_t groups, size_t blocks,
                       Partial<Dot, kM>& partial) {
  using V = typename Dot::Wide;
  constexpr size_t kRows = kTileRows<Dot>, kBlockBytes = kBlockColumns * kRows;
  const ActivationRows<Dot, kM> x(*a.x, a.i, a.product->matrix->bits);
  const std::byte* codes = tile.codes;
  const size_t scales_bytes = kRows * scale_bytes(*a.product->matrix);
  size_t k = 0;
  alignas(64) static constexpr float kZeros[kM][2][V::kLanes] = {};
  for (size_t g = 0; g < groups; ++g) {
    typename V::Int sums[kM][2];
    a.fetch_scales(scales_bytes);
    a.fetch(kBlockBytes / 2);
    corrected_products<Dot, kM, true>(codes, x, k, sums);
    k += kBlockColumns, codes += kBlockBytes;
    for (size_t b = 1; b < blocks; ++b, k += kBlockColumns, codes += kBlockBytes) {
      a.fetch(kBlockBytes / 2);
      corrected_products<Dot, kM, false>(codes, x, k, sums);
    }
    settle<Dot, kM>(sums);
    auto& to = partial.sums[g % kPartialSums];
    const auto* from = g < kPartialSums ? kZeros : to;
#pragma GCC unroll 2
    for (size_t h = 0; h < 2; ++h) {
      const auto scale = V::load(tile.scales + g * kRows + h * V::kLanes);
#pragma GCC unroll 8
      for (size_t i = 0; i < kM; ++i) {
        V::store(to[i][h], V::fma(V::to_float(sums[i][h]), scale, V::load(from[i][h])));
      }
    }
  }
}

template <class Dot, size_t kM>
inline void many_rows4(const ManyRows& a, const TileBuffer<Dot>& tile, size_t groups,
                       size_t blocks) {
  using V = typename Dot::Wide;
  Partial<Dot, kM> p;
  if (groups < kPartialSums) __builtin_memset(&p, 0, sizeof p);
  sum_groups<Dot, kM>(a, tile, groups, blocks, p);
  for (size_t i = 0; i < kM; ++i) {
    const QuantizedRow row = a.x->row(a.i + i).head().row;
    for (size_t h = 0; h < 2; ++h) {
      typename V::Float s[4];
      for (size_t j = 0; j < 4; ++j) {
        s[j] = V::add(V::load(p.sums[j][i][h]), V::load(p.sums[j + 4][i][h]));
      }
      auto v = V::add(V::add(s[0], s[2]), V::add(s[1], s[3]));
      const auto zero = V::set(static_cast<float>(row.zero_point));
      v = V::sub(v, V::mul(zero, V::load(tile.sums + h * V::kLanes)));
      v = V::mul(v, V::set(row.inverse_scale));
      if (a.product->bias != nullptr) v = V::add(v, V::load(tile.bias + h * V::kLanes));
      store_lanes<Dot>(a, i, h * V::kLanes, v);
    }
  }
}

template <class Dot, size_t kM>
inline void many_rows8(ManyRows a, const TileBuffer<Dot>& tile, size_t /*groups*/, size_t blocks) {
  using V = typename Dot::Wide;
  constexpr size_t kStep = kBlockColumns * kTileRows<Dot> * (Dot::kPairs ? 2 : 1);
  const ActivationRows<Dot, kM> x(*a.x, a.i, a.product->matrix->bits);
  typename V::Int sums[kM][2];
  for (size_t i = 0; i < kM; ++i) sums[i][0] = sums[i][1] = V::set(0);
  for (size_t b = 0; b < blocks; ++b) {
    a.fetch(kBlockColumns * kTileRows<Dot>);
    if constexpr (Dot::kPairs) {
      wide_products<Dot, kM>(tile.codes + b * kStep, x, b * kBlockColumns, sums);
    } else {
      dot_products<Dot, kM>(tile.codes + b * kStep, x, b * kBlockColumns, sums);
    }
  }
  settle<Dot, kM>(sums);
  for (size_t i = 0; i < kM; ++i) {
    const ActivationRow::Head head = a.x->row(a.i + i).head();
    for (size_t h = 0; h < 2; ++h) {
      auto sum = V::sub(sums[i][h], V::set(Dot::kPairs ? 0 : Dot::kOffset8 * head.sum));
      sum =
          V::sub(sum, V::mul(V::set(head.row.zero_point), V::load(tile.code_sums + h * V::kLanes)));
      auto v = V::mul(V::to_float(sum), V::set(head.row.inverse_scale));
      v = V::mul(v, V::load(tile.scales + h * V::kLanes));
      if (a.product->bias != nullptr) v = V::add(v, V::load(tile.bias + h * V::kLanes));
      store_lanes<Dot>(a, i, h * V::kLanes, v);
    }
  }
}

template <class Dot, size_t kM, int kBits>
inline void many_at_a_time(const ManyRows& a, const TileBuffer<Dot>& tile, size_t groups,
                           size_t blocks) {
  if constexpr (kBits == 4) {
    many_rows4<Dot, kM>(a, tile, groups, blocks);
  } else {
    many_rows8<Dot, kM>(a, tile, groups, blocks);
  }
}

// Computes the remaining rows, which are fewer than kM.
template <class Dot, size_t kM, int kBits>
inline void rest_of_rows(const ManyRows& a, const TileBuffer<Dot>& tile, size_t groups,
                         size_t blocks) {
  if constexpr (kM > 1) {
    if (a.x->rows - a.i < kM) return rest_of_rows<Dot, kM - 1, kBits>(a, tile, groups, blocks);
  }
  many_at_a_time<Dot, kM, kBits>(a, tile, groups, blocks);
}

template <class Dot, int kBits>
void many(const CodedProduct& p, const Activations& x, size_t begin, size_t end) {
  const Groups groups(*p.matrix);
  const size_t blocks = (groups.columns + kBlockColumns - 1) / kBlockColumns;
  const Scratch memory(TileBuffer<Dot>::floats(*p.matrix));
  const TileBuffer<Dot> tile(*p.matrix, memory.data());
  ManyRows a{&x, 0, begin, static_cast<size_t>(p.matrix->rows), &p, nullptr, nullptr};
  for (; a.n < end; a.n += kTileRows<Dot>) {
    fill_tile(p, a.n, groups.count, tile);
    a.next = row_codes(*p.matrix, a.n + kTileRows<Dot>);
    a.next_scales = row_scales(*p.matrix, a.n + kTileRows<Dot>);
    for (a.i = 0; a.i + Dot::kActs <= x.rows; a.i += Dot::kActs) {
      many_at_a_time<Dot, Dot::kActs, kBits>(a, tile, groups.count, blocks);
      a.next = nullptr, a.next_scales = nullptr;
    }
    if (a.i < x.rows) rest_of_rows<Dot, Dot::kActs - 1, kBits>(a, tile, groups.count, blocks);
  }
}

}  // namespace
}  // namespace ferry::kernels
