// AttentionMask is the mask input of a static program. It says which columns each token of a call
// sees. A call of AR tokens has AR rows of CL columns. The first C = CL - AR columns are the cache;
// the last AR columns are the tokens of the call itself.
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

// One element of a tensor whose dtype is known only at run time: the first `bytes` bytes of `bits`,
// little-endian.
struct Element {
  uint32_t bits = 0;
  size_t bytes = 4;  // 1, 2 or 4
};

inline size_t index(int64_t n) { return static_cast<size_t>(n); }

// Writes `count` copies of an element from `at` on.
inline void fill(std::byte* at, size_t count, Element element) {
  if (element.bytes == 1) {
    std::memset(at, static_cast<int>(element.bits), count);
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    std::memcpy(at + i * element.bytes, &element.bits, element.bytes);
  }
}

// This number is added to the score of a masked column. It is finite, because -inf minus -inf is
// NaN if a row has only masked columns. It is far below any score, so the weight is 0.
inline constexpr float kMaskedF32 = -65535.0f;
// bf16 has 8 significant bits, so -65535 would be rounded to this number.
inline constexpr float kMaskedBF16 = -65536.0f;
// -65535 is beyond f16 and would become -inf. This number is the lowest finite one.
inline constexpr float kMaskedF16 = -65504.0f;
// Only numbers up to this hide a column: exp(-20) is 2e-9.
inline constexpr double kLeastMasked = -20.0;

struct MaskValues {
  Element attend, masked;
};
// In quantised masks a visible column has the code of 0, and a masked column has code 0, which is
// the lowest number. kUnsupported for dtypes other than f32, f16, bf16, u16 and u8, and for
// encodings whose lowest number is above kLeastMasked. `port` begins error messages.
Result<MaskValues> mask_values(DType dtype, const std::optional<Encoding>& encoding,
                               const std::string& port);

class AttentionMask {
 public:
  // Makes the mask of calls of `ar` tokens, ar < cl. A token at position p with a window of W
  // positions sees positions p - W + 1 to p. All memory is allocated here.
  AttentionMask(const MaskValues& values, int64_t ar, int64_t cl, std::optional<int64_t> window);

  // Begins with `n_past` columns in the cache. Row i sees the columns that row parents[i] < i sees,
  // and itself. A parent of -1 stands for the cache. offsets[i] is the position of row i minus that
  // of row 0. Rows beyond the end of `parents` see themselves only. `offsets` has as many elements
  // as `parents`; both have at most ar.
  void init(std::span<const int32_t> parents, std::span<const int32_t> offsets, int64_t n_past);
  // Adds n_update columns to the cache, with n_past + n_update <= CL - AR. The mask between the
  // tokens of one call is unchanged.
  void update(int64_t n_update);

  // Lets row `row` see the tokens of the call up to, but without, row `end`; or hides those behind
  // it again. update() leaves them as they are.
  void see_later(int64_t row, int64_t end, bool seen);

  // Returns [AR, CL], row-major. The address never changes.
  std::span<const std::byte> bytes() const { return bytes_; }
  int64_t n_past() const { return n_past_; }

 private:
  // Returns the first column of the cache that a row with this offset sees if the cache has n
  // columns.
  int64_t first_seen(int64_t n, int32_t offset) const;
  void set(int64_t row, int64_t begin, int64_t end, Element value);
  void init_row(int64_t row, std::span<const int32_t> parents);
  void hide_new_columns(int64_t row);

  MaskValues values_;
  int64_t ar_, cl_, n_past_ = 0;
  std::optional<int64_t> window_;
  std::vector<int32_t> offsets_;  // offsets of the rows that see the cache
  std::vector<std::byte> bytes_;
};

}  // namespace ferry::runner
