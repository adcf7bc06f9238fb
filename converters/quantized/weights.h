// Derived tensors: matrices that are stored quantised, decoded to floats.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "converters/quantized/config.h"
#include "core/derived_source.h"

namespace ferry::converters {

// -- 8-bit elements, floats or integers, with a scale for each block: fp8 with blocks of 128 x 128,
// a scale for each row, each group of columns, or one for all

// value = (element - zero) * scale, in f32.
struct ScaledWeight {
  size_t weight = 0;                 // entry of i8 or an 8-bit float, (rows, columns)
  size_t scales = 0;                 // entry of floats: one for each block, row by row of blocks
  std::optional<size_t> zeros = {};  // entry of i8, in the order of the scales
  int64_t columns = 0;
  ScaleBlock block = {};  // no size is 0
  int bits = 8;           // of integers: 8, or 4 if elements are -8 to 7
};

// The caller has checked the shapes of the entries.
std::unique_ptr<Derivation> decode_scaled(const ScaledWeight& weight);

// -- 4- or 8-bit integers packed into 32-bit ones, with a scale and a zero point for each group of
// columns: GPTQ, AWQ, and pack-quantized of compressed-tensors

// A matrix of integers (outputs, inputs), stored as a matrix of 32-bit integers. Each of those
// holds 32 / bits integers, the first one in the low bits.
struct PackedIntegers {
  size_t entry = 0;             // entry of i32 or u32, two-dimensional
  bool outputs_across = false;  // outputs are columns of the stored matrix, else rows
  bool packs_outputs = false;   // an integer has consecutive outputs, else consecutive inputs
  bool awq_order = false;       // the places of an integer hold 0 2 4 6 1 3 5 7
};

// value(o, i) = (code(o, i) - zero(o, g)) * scale(o, g), in f32; g is the group of i.
struct PackedWeight {
  int bits = 4;
  int64_t outputs = 0, inputs = 0, groups = 1;
  int64_t group_size = 0;  // without `group_of`
  PackedIntegers codes = {};
  // If absent, the middle code, 2^(bits - 1), is zero.
  std::optional<PackedIntegers> zeros = {};
  // Entry of zero points as i8, where they are not packed: 0 is the middle code.
  std::optional<size_t> plain_zeros = {};
  int64_t zero_offset = 0;              // added to stored zero points, modulo 2^bits
  size_t scales = 0;                    // entry of floats
  bool scales_across = false;           // (groups, outputs), else (outputs, groups)
  std::optional<size_t> group_of = {};  // entry of i32 (inputs)
  bool may_leave_groups = false;        // -1 throughout stands for groups in their order
};

// The caller has checked the shapes of the entries. Reading a group that does not exist is
// kBadInput.
std::unique_ptr<Derivation> decode_packed(const PackedWeight& weight);

// -- 4-bit floats in blocks of 32, which share an exponent: MXFP4, as GPT-OSS is released. Source:
// OCP Microscaling Formats; transformers, integrations/mxfp4.py

inline constexpr int64_t kMxBlock = 32;  // elements that share an exponent
inline constexpr std::string_view kMxfp4Name = "mxfp4";

// value = element * 2^(scale - 127), in f32. Elements are f4_e2m1, two in a byte, the first in the
// low bits.
struct BlockWeight {
  size_t blocks = 0;  // entry of u8, (.., rows, columns / 32, 16)
  size_t scales = 0;  // entry of u8, (.., rows, columns / 32)
  int64_t columns = 0;
};

// The derived tensor has the blocks of GGUF: a scale, then bytes that hold an element of the first
// half of the block in the low bits and one of the second half in the high bits. A scale of 255,
// which stands for NaN, is kBadInput. The caller has checked the shapes of the entries.
std::unique_ptr<Derivation> decode_blocks(const BlockWeight& weight);

// -- ternary matrices: BitNet

struct TernaryWeight {
  size_t weight = 0;  // entry of u8 (rows / 4, columns), or of floats (rows, columns)
  std::optional<size_t> scale = {};  // entry of one float; none: the matrix is rounded
  int64_t rows = 0, columns = 0;
  bool divides = false;
};

// A byte of u8 holds four rows that are rows / 4 apart, the first one in the low bits, each as a
// value plus 1; the code 3 is kBadInput. Values are multiplied or divided by the scale. Without a
// scale a float w becomes clamp(round(w s), -1, 1) / s, where 1 / s is the mean of the absolute
// values of the matrix, at least 1e-5. The caller has checked the shapes of the entries.
// Source: transformers, integrations/bitnet.py.
std::unique_ptr<Derivation> decode_ternary(const TernaryWeight& weight);

}  // namespace ferry::converters
