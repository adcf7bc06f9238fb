// The interface between quantized_linear.cc and the instruction sets: the inputs and outputs of a
// product, and the functions that each instruction set implements.
//
// All instruction sets give the same bits. Sums of products of codes are exact integers. For each
// group of columns the integer, as f32, is multiplied with the scale and added to one of 8 partial
// sums: group g to sum g % 8, by fused multiply-add. The result is ((s0 + s4) + (s2 + s6)) + ((s1 +
// s5) + (s3 + s7)).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "kernels/processor.h"
#include "kernels/quantized_linear.h"

namespace ferry::kernels {

constexpr size_t kPartialSums = 8;
// Rows of activations are padded with codes of 0 to a multiple of this.
constexpr size_t kPaddedColumns = 256;
constexpr size_t kBlockColumns = 32;
// Columns that ActivationRow::split_codes() divides at a time.
constexpr size_t kSplitColumns = 128;

constexpr size_t padded_columns(size_t columns) {
  return (columns + kPaddedColumns - 1) / kPaddedColumns * kPaddedColumns;
}

// The inputs of the products with one row of activations, at fixed offsets of a slot of the scratch
// memory. The slot is aligned to 64.
struct ActivationRow {
  std::byte* slot;
  size_t padded;

  struct Head {
    QuantizedRow row;
    int32_t sum;  // the sum of the codes
  };
  static constexpr size_t kHeadBytes = 64;

  Head& head() const { return *reinterpret_cast<Head*>(slot); }
  // Returns the codes in their order.
  int8_t* codes() const { return reinterpret_cast<int8_t*>(slot + kHeadBytes); }
  // Codes for products of one row at a time. In each 128 codes those of even columns come first,
  // then the others.
  int8_t* split_codes() const { return codes() + padded; }
  // Holds 8 numbers for each 64 codes: -8 times the sum of 4 even and of the 4 odd columns between.
  int32_t* split_offsets() const { return reinterpret_cast<int32_t*>(split_codes() + padded); }
  // Codes for products of many rows: the codes as 16 bits, for each 32 codes -8 times their sum,
  // and the codes with those of even columns first in each 8.
  int16_t* wide_codes() const { return reinterpret_cast<int16_t*>(codes() + padded); }
  int32_t* block_offsets() const { return reinterpret_cast<int32_t*>(wide_codes() + padded); }
  int8_t* split_eights() const {
    return reinterpret_cast<int8_t*>(block_offsets() + padded / kBlockColumns);
  }

  static constexpr size_t bytes(size_t padded) {
    return kHeadBytes + 4 * padded + padded / kBlockColumns * sizeof(int32_t);
  }
};

// Split codes and their offsets from a column on, a multiple of 64.
struct SplitCodes {
  const int8_t* codes;
  const int32_t* offset_numbers;
  size_t column = 0;

  explicit SplitCodes(const ActivationRow& row)
      : codes(row.split_codes()), offset_numbers(row.split_offsets()) {}
  SplitCodes from(size_t columns) const {
    SplitCodes later = *this;
    later.column += columns;
    return later;
  }
  // Each has the codes of 64 columns, or of 128 at a multiple of 128.
  const int8_t* even() const {
    return codes + column / kSplitColumns * kSplitColumns + column % kSplitColumns / 2;
  }
  const int8_t* odd() const { return even() + kSplitColumns / 2; }
  const int32_t* offsets() const { return offset_numbers + column / 8; }
};

struct Activations {
  std::byte* slots = nullptr;
  size_t rows = 0, columns = 0;

  ActivationRow row(size_t i) const {
    const size_t padded = padded_columns(columns);
    return {slots + i * ActivationRow::bytes(padded), padded};
  }
};

// One product: out [rows of activations, matrix.rows]. `sums` holds, for each row of the matrix,
// the sum of scale * code if there are groups, else of the codes.
struct CodedProduct {
  const CodedMatrix* matrix = nullptr;
  const float* sums = nullptr;         // for matrices with group scales, and all of 4 bits
  const int32_t* code_sums = nullptr;  // for matrices of 8 bits with one scale per row
  const float* bias = nullptr;
  float* out = nullptr;
};

// Computes rows [begin, end) of the matrix times all rows of activations.
using ProductFunction = void(const CodedProduct&, const Activations&, size_t begin, size_t end);

struct InstructionSet {
  const char* name;
  // Quantises one row into its slot: with the split codes if `few`, else with the wide codes.
  void (*quantize)(const float* x, size_t columns, bool few, const ActivationRow& row);
  // The products with few rows of activations and with many, for codes of 4 and of 8 bits.
  ProductFunction *few4, *few8, *many4, *many8;
  // `many4` and `many8` work on this many rows of the matrix at a time.
  size_t tile_rows;
  // Computes the sums of codes of rows [begin, end) of a matrix of 8 bits.
  void (*code_sums)(const CodedMatrix&, size_t begin, size_t end, int32_t* sums);
  // The products with some more rows of activations, which are quantised as few rows: up to this
  // many with codes of 4 bits in groups of 32 columns, and with codes of 8 bits that have one scale
  // for each row. 0 where an instruction set has none.
  size_t most_several4 = 0, most_several8 = 0;
  ProductFunction* several = nullptr;
};

// Returns the instruction sets that are compiled in and that this processor and system support, the
// fastest first. The last is plain C++.
std::span<const InstructionSet* const> instruction_sets();

// The functions of quantized_linear.h with a given instruction set, for tests.
void dynamic_linear_with(const InstructionSet& set, const float* x, int64_t m, int64_t columns,
                         std::span<const LinearTask> tasks, std::span<std::byte> scratch,
                         ThreadPool& pool);

// The groups of columns of a matrix in the form that the kernels use.
struct Groups {
  size_t count, columns;
  explicit Groups(const CodedMatrix& m)
      : count(m.group == 0 ? 1 : static_cast<size_t>(m.columns / m.group)),
        columns(static_cast<size_t>(m.group == 0 ? m.columns : m.group)) {}
};

inline size_t row_bytes(const CodedMatrix& m) {
  return static_cast<size_t>(m.columns) * static_cast<size_t>(m.bits) / 8;
}

inline const uint8_t* row_codes(const CodedMatrix& m, size_t row) {
  return reinterpret_cast<const uint8_t*>(m.codes) + row * row_bytes(m);
}

inline size_t scale_bytes(const CodedMatrix& m) { return m.scale_dtype == DType::kBF16 ? 2 : 4; }

inline const std::byte* row_scales(const CodedMatrix& m, size_t row) {
  return m.scales + row * Groups(m).count * scale_bytes(m);
}

// Returns scale `index` of a matrix.
inline float scale_at(const CodedMatrix& m, size_t index) {
  float value = 0;
  if (m.scale_dtype == DType::kBF16) {
    uint16_t bits = 0;
    std::memcpy(&bits, m.scales + 2 * index, sizeof bits);
    return std::bit_cast<float>(uint32_t{bits} << 16);
  }
  std::memcpy(&value, m.scales + 4 * index, sizeof value);
  return value;
}

// group_result() computes an output from the sum over groups. The function after it uses the sum of
// products of codes.
inline float group_result(const CodedProduct& p, const QuantizedRow& row, float sum, size_t n) {
  if (p.sums != nullptr) sum -= static_cast<float>(row.zero_point) * p.sums[n];
  sum *= row.inverse_scale;
  return p.bias != nullptr ? sum + p.bias[n] : sum;
}

inline float row_result(const CodedProduct& p, const QuantizedRow& row, int32_t sum, size_t n) {
  const float products = static_cast<float>(sum - row.zero_point * p.code_sums[n]);
  float value = products * row.inverse_scale * scale_at(*p.matrix, n);
  return p.bias != nullptr ? value + p.bias[n] : value;
}

// -- rows of activations, quantised into the forms that the products read

// A `factor` of 0 means that the row has no scale and its codes are 0.
struct RowScale {
  float factor;
  int32_t zero_point;
  QuantizedRow row;
};
// `low` and `high` are the least and the greatest of the row's values and 0.
RowScale row_scale(float low, float high, bool finite);

// Computes row.split_codes() from row.codes(), which are padded.
void split_codes(const ActivationRow& row);
void widen_codes(const ActivationRow& row);
void split_eights(const ActivationRow& row);
void sum_blocks(const ActivationRow& row);

// Implements InstructionSet::quantize in plain C++.
void quantize_plainly(const float* x, size_t columns, bool few, const ActivationRow& row);

// -- the instruction sets that are compiled in, each in a file of its own

const InstructionSet& quantized_portable();
#if defined(__x86_64__)
const InstructionSet& quantized_avx2();
const InstructionSet& quantized_avx_vnni();
const InstructionSet& quantized_avx512();
const InstructionSet& quantized_avx512_vnni();
#endif
#if FERRY_NEON_DOT
const InstructionSet& quantized_neon_dot();
#endif
#if FERRY_NEON_I8MM
const InstructionSet& quantized_neon_i8mm();
#endif

}  // namespace ferry::kernels
