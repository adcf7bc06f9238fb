// Weights in programs of other tools: constants of operators, and filters in the graphs of
// delegates. What reads a weight tells how it is coded, because its name may be anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/result.h"
#include "packer/bundle_reader.h"

namespace ferry::proof {

// A matrix of values, or of codes: (code - zero point) * scale, in f32. All bytes are those of the
// bundle, which must outlive it.
struct ProgramMatrix {
  enum class Packing : uint8_t {
    kValues,     // of `dtype`
    kI8,         // one code to a byte
    kU8,         // one code to a byte, from 0 on
    kLowFirst,   // two codes of 4 bits to a byte, each stored as code + 8
    kHighFirst,  // the same in the other order
    kFourCodes,  // four codes of 2 bits to a byte, low bits first, each stored as code + 2
  };
  std::string place;   // where the program reads it, for messages
  bool table = false;  // rows are looked up, not multiplied
  int64_t rows = 0, columns = 0;
  Packing packing = Packing::kValues;
  DType dtype = DType::kF32;
  std::span<const std::byte> bytes = {};
  int64_t groups = 1;  // scales of a row, each for as many columns
  DType scale_dtype = DType::kF32;
  std::span<const std::byte> scales = {};
  std::span<const std::byte> zero_points = {};  // of scale_dtype, or empty

  bool is_coded() const { return packing != Packing::kValues; }
  // Returns the bytes of so many values or codes in whole rows.
  uint64_t bytes_of(int64_t values) const;
  // The row must exist, and `out` have `columns` values.
  void read_row(int64_t row, std::span<float> out) const;
  float scale(int64_t row, int64_t group) const;
  float zero_point(int64_t row, int64_t group) const;
  // The least and the greatest code.
  std::pair<int, int> code_range() const;
};

// A constant of one dimension, such as the weight of a norm or a bias. The bytes are those of the
// bundle, which must outlive it.
struct ProgramVector {
  std::string place;  // where the program reads it, for messages
  int64_t size = 0;
  DType dtype = DType::kF32;
  std::span<const std::byte> bytes = {};

  std::vector<float> values() const;
};

struct ProgramConstants {
  std::vector<ProgramMatrix> matrices;
  std::vector<ProgramVector> vectors;
};

// Returns the constants of the text decoder and the token embedding, each once, in the order in
// which the programs read them first. Constants with more than two dimensions count as matrices of
// their last dimension, and those with one row as vectors. Constants in a form that is not known
// here are left out.
Result<ProgramConstants> constants_of(const packer::Bundle& bundle);

}  // namespace ferry::proof
