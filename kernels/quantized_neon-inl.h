// Shared by the instruction sets of NEON: the vectors of products of many rows, and the copying of
// rows of the matrix into a tile. Files include it after quantized_many-inl.h.

namespace ferry::kernels {
namespace {

struct Neon {
  using Int = int32x4_t;
  using Float = float32x4_t;
  static constexpr size_t kLanes = 4;

  static Int load(const void* p) { return vld1q_s32(static_cast<const int32_t*>(p)); }
  static Int set(int32_t x) { return vdupq_n_s32(x); }
  static Int add(Int a, Int b) { return vaddq_s32(a, b); }
  static Int sub(Int a, Int b) { return vsubq_s32(a, b); }
  static Int mul(Int a, Int b) { return vmulq_s32(a, b); }
  static Float to_float(Int v) { return vcvtq_f32_s32(v); }
  static Float load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, Float v) { vst1q_f32(p, v); }
  static void store_any(float* p, Float v) { vst1q_f32(p, v); }
  static Float set(float x) { return vdupq_n_f32(x); }
  static Float add(Float a, Float b) { return vaddq_f32(a, b); }
  static Float sub(Float a, Float b) { return vsubq_f32(a, b); }
  static Float mul(Float a, Float b) { return vmulq_f32(a, b); }
  static Float fma(Float a, Float b, Float c) { return vfmaq_f32(c, a, b); }
};

// Returns 32 codes in the order of columns from 16 bytes of two codes each.
inline int8x16x2_t codes_of_nibbles(uint8x16_t pairs) {
  const int8x16_t eight = vdupq_n_s8(8);
  const int8x16_t low = vsubq_s8(vreinterpretq_s8_u8(vandq_u8(pairs, vdupq_n_u8(15))), eight);
  const int8x16_t high = vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(pairs, 4)), eight);
  return {{vzip1q_s8(low, high), vzip2q_s8(low, high)}};
}

// Stores codes in runs of kRun columns that are `step` bytes apart. Returns the place of the next.
template <size_t kRun>
inline std::byte* store_runs(const int8_t* codes, size_t count, size_t step, std::byte* to) {
  size_t k = 0;
  for (; k + kRun <= count; k += kRun, to += step) __builtin_memcpy(to, codes + k, kRun);
  if (k < count) __builtin_memcpy(to, codes + k, count - k);
  return to;
}

// Copies a row of codes of 4 bits as bytes: for each run of kRun columns those of all rows follow
// each other.
template <size_t kRun>
inline void copy_row4(const uint8_t* row, size_t columns, size_t tile_rows, std::byte* to) {
  int8_t codes[32];
  for (size_t k = 0; k < columns; k += 32) {
    uint8_t rest[16] = {};
    const size_t count = columns - k < 32 ? columns - k : 32;
    const uint8_t* from = row + k / 2;
    if (count < 32) from = static_cast<const uint8_t*>(__builtin_memcpy(rest, from, count / 2));
    const int8x16x2_t both = codes_of_nibbles(vld1q_u8(from));
    vst1q_s8(codes, both.val[0]);
    vst1q_s8(codes + 16, both.val[1]);
    to = store_runs<kRun>(codes, count, kRun * tile_rows, to);
  }
}

// The members of a `Dot` of quantized_many-inl.h that do not depend on the instructions.
struct NeonRows {
  using Wide = Neon;
  static constexpr bool kPairs = false;
  static constexpr int kOffset4 = 0, kOffset8 = 0;
  static constexpr size_t kActs = 8, kCopied = 2 * Neon::kLanes;

  static const int8_t* codes4(const ActivationRow& row) { return row.codes(); }
  template <size_t kRun>
  static void copy_rows4(const uint8_t* const* rows, size_t columns, size_t tile_rows,
                         std::byte* to) {
    for (size_t i = 0; i < kCopied; ++i) {
      copy_row4<kRun>(rows[i], columns, tile_rows, to + kRun * i);
    }
  }
  template <size_t kRun>
  static void copy_rows8(const uint8_t* const* rows, size_t columns, size_t tile_rows,
                         std::byte* to) {
    for (size_t i = 0; i < kCopied; ++i) {
      const auto* codes = reinterpret_cast<const int8_t*>(rows[i]);
      store_runs<kRun>(codes, columns, kRun * tile_rows, to + kRun * i);
    }
  }
  static void copy_scales(const CodedMatrix& m, const std::byte* const* rows, size_t tile_rows,
                          float* to) {
    for (size_t i = 0; i < kCopied; ++i) {
      const size_t first = static_cast<size_t>(rows[i] - m.scales) / scale_bytes(m);
      for (size_t g = 0; g < Groups(m).count; ++g) to[g * tile_rows + i] = scale_at(m, first + g);
    }
  }
};

}  // namespace
}  // namespace ferry::kernels
