// Matrices of 4- or 8-bit integers packed into 32-bit ones, with a scale and a zero point for each
// group of columns: GPTQ, AWQ, and pack-quantized of compressed-tensors.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "core/derived_source.h"

namespace ferry::converters {

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

}  // namespace ferry::converters
