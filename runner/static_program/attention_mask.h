// AttentionMask: the mask input of a static program: which columns each token of a call sees. A
// call of AR tokens has AR rows of CL columns. The first C = CL - AR columns are the cache; the
// last AR columns are the tokens of the call itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/encoding.h"
#include "core/result.h"

namespace ferry::runner {

// One element of a tensor whose dtype is known at run time only: the first `bytes` bytes of `bits`,
// little-endian.
struct Element {
  uint32_t bits = 0;
  size_t bytes = 4;  // 1, 2 or 4
};

inline size_t index(int64_t n) { return static_cast<size_t>(n); }

// Writes `count` copies of an element from `at` on, an element of the same size.
inline void fill(std::byte* at, size_t count, Element element) {
  if (element.bytes == 1) {
    std::memset(at, static_cast<int>(element.bits), count);
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(at + i * element.bytes, &element.bits, element.bytes);
  }
}

// The number that is added to the score of a masked column. It is finite on purpose: -inf minus
// -inf is NaN where a row has nothing but masked columns. Far below any score, so that the weight
// is 0.
inline constexpr float kMaskedF32 = -65535.0f;
// bf16 has 8 significant bits: -65535 would round to this.
inline constexpr float kMaskedBF16 = -65536.0f;
// -65535 is beyond f16 and would become -inf. This is the lowest finite value.
inline constexpr float kMaskedF16 = -65504.0f;
// The largest number that hides a column: exp(-20) is 2e-9.
inline constexpr double kLeastMasked = -20.0;

struct MaskValues {
  Element attend, masked;
};
// Quantised masks attend with the code of 0 and mask with code 0, the lowest number that there is.
// kUnsupported for dtypes other than f32, f16, bf16, u16 and u8, and for encodings whose lowest
// number is above kLeastMasked. `port` begins the messages.
Result<MaskValues> mask_values(DType dtype, const std::optional<Encoding>& encoding,
                               const std::string& port);

class AttentionMask {
 public:
  // The mask of calls of `ar` tokens, ar < cl. A token at position p of a window of W positions
  // sees positions p - W + 1 to p. All memory is allocated here.
  AttentionMask(const MaskValues& values, int64_t ar, int64_t cl, std::optional<int64_t> window);

  // Begins with `n_past` columns in the cache. Row i sees what row parents[i] < i sees, and itself;
  // a parent of -1 stands for the cache. offsets[i] is the position of row i less that of row 0.
  // Rows beyond the end of `parents` see themselves only. `offsets` has as many elements as
  // `parents`; both have at most ar.
  void init(std::span<const int32_t> parents, std::span<const int32_t> offsets, int64_t n_past);
  // `n_update` more columns are in the cache, n_past + n_update <= CL - AR. What tokens of one call
  // see of each other stays as it is.
  void update(int64_t n_update);

  // [AR, CL], row-major; stays where it is.
  std::span<const std::byte> bytes() const { return bytes_; }
  int64_t n_past() const { return n_past_; }

 private:
  // The first column of the cache that a row of this offset sees when n columns are there.
  int64_t first_seen(int64_t n, int32_t offset) const;
  void set(int64_t row, int64_t begin, int64_t end, Element value);
  void init_row(int64_t row, std::span<const int32_t> parents);
  void hide_new_columns(int64_t row);

  MaskValues values_;
  int64_t ar_, cl_, n_past_ = 0;
  std::optional<int64_t> window_;
  std::vector<int32_t> offsets_;  // of the rows that see the cache
  std::vector<std::byte> bytes_;
};

}  // namespace ferry::runner
