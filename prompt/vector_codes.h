// VectorCoder makes one byte of each value of a vector, or one bit. Source: sentence-transformers,
// util/quantization.py, quantize_embeddings().
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace ferry::prompt {

// kInt8 and kUint8: 256 steps between the least and the largest value of a column. kBinary and
// kUbinary: bits that say whether values are positive, eight to a byte, the first one highest; the
// last byte is filled up with zeros, and kBinary takes 128 off each byte.
enum class VectorPrecision { kF32, kInt8, kUint8, kBinary, kUbinary };
std::optional<VectorPrecision> find_vector_precision(std::string_view name);

constexpr bool has_ranges(VectorPrecision precision) {
  return precision == VectorPrecision::kInt8 || precision == VectorPrecision::kUint8;
}
constexpr bool is_binary(VectorPrecision precision) {
  return precision == VectorPrecision::kBinary || precision == VectorPrecision::kUbinary;
}

// The least and the largest value of each column.
struct VectorRanges {
  std::vector<float> least, largest;
};

// Reads the ranges of the columns of a NumPy file (.npy, version 1.0 to 3.0) with an f32 array of
// rows, which are vectors, or the two rows of ranges themselves. kBadInput unless there are at
// least two rows of `width` finite values, in C order.
Result<VectorRanges> read_vector_ranges(std::span<const std::byte> file, const std::string& name,
                                        int64_t width);

class VectorCoder {
 public:
  // `precision` is not kF32. Ranges are those of precisions that have them.
  VectorCoder(VectorPrecision precision, VectorRanges ranges);

  // Returns the codes of a vector: i8 for kInt8 and kBinary, else u8.
  std::vector<uint8_t> codes_of(std::span<const float> vector) const;

 private:
  VectorPrecision precision_;
  std::vector<float> least_, steps_;
};

}  // namespace ferry::prompt
