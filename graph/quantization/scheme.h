// Schemes turn the rows of a matrix into integer codes and scales: real = code * scale, with the
// zero point 0. The stored form is that of the official runtime: XNNPACK's qbint4 and qcint8
// filters, and the tables of quantized_decomposed::embedding_4bit and embedding_byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/dtype.h"

namespace ferry::graph {

// How the scale of a group is chosen.
enum class ScaleMethod {
  // The scale of least squared error among candidates. It is rounded to the stored type before the
  // codes are chosen, so that the codes fit the stored scale.
  kBf16First,
  // The half-quadratic method, scale only, with the bits of torchao's hqq_scale_only, which the
  // official exporter uses (for rows and groups of at least 8). The codes fit the scale before it
  // is rounded to bf16.
  kHqq,
  // Codes and scales are chosen before, for the outputs that inputs of the model give; see
  // calibration/code_search.h. They are in the recipe of the weight.
  kCalibrated,
  // Codes and scales are those of the checkpoint.
  kKept,
};

// The order of two codes in one byte. The official operators disagree on the order.
enum class NibbleOrder { kLowFirst, kHighFirst };

struct QuantizationScheme {
  int bits = 4;                     // 4 (-8..7) or 8 (-128..127)
  int64_t group = 0;                // elements of a row that share a scale; 0 for the whole row
  DType scale_dtype = DType::kF32;  // f32 or bf16
  ScaleMethod method = ScaleMethod::kBf16First;
  NibbleOrder order = NibbleOrder::kLowFirst;  // for 4 bits, where a nibble is code + 8
  // The number of rounds of refinement, for kHqq. The reference stops when no scale of the whole
  // tensor changes; count_hqq_rounds() finds the number.
  int rounds = 20;
  bool operator==(const QuantizationScheme&) const = default;

  int64_t groups(int64_t columns) const { return group == 0 ? 1 : columns / group; }
  uint64_t code_bytes(int64_t columns) const { return static_cast<uint64_t>(columns * bits / 8); }
  uint64_t scale_bytes(int64_t columns) const {
    return static_cast<uint64_t>(groups(columns) * dtype_bytes(scale_dtype));
  }
  // Says why rows of `columns` elements cannot be quantised. The text is empty if they can.
  std::string misfit(int64_t columns) const;
};

// Quantises whole rows of `columns` values. A group divides a row, and 4-bit codes of a row are
// whole bytes. `codes` has rows * code_bytes, `scales` has rows * scale_bytes; neither has an
// alignment. The bytes of a row depend only on its values and the scheme, not on other rows or the
// processor. Every scale is positive and normal, also that of a group of zeros (2^-23). A value
// that is not finite counts as 0. Returns the number of such values, because callers refuse such
// weights.
uint64_t quantize_rows(const QuantizationScheme& scheme, std::span<const float> values,
                       int64_t columns, std::span<std::byte> codes, std::span<std::byte> scales);

// Stores codes and scales that exist already in the form of the scheme. Scales are rounded to its
// dtype.
void store_codes(const QuantizationScheme& scheme, std::span<const int8_t> codes,
                 std::span<const float> scales, std::span<std::byte> stored_codes,
                 std::span<std::byte> stored_scales);

// Computes the values that the codes and scales represent.
void dequantize_rows(const QuantizationScheme& scheme, std::span<const std::byte> codes,
                     std::span<const std::byte> scales, int64_t columns, std::span<float> values);

// For kHqq: computes how much the scales of these rows still change, relative to themselves, in
// each of the 20 rounds, as the maximum over the rows. The maximum over all rows of a tensor
// decides in which round the reference stops: the first below 1e-5. `changes` is raised, so that
// the rows of a tensor may be given in several calls.
inline constexpr int kMaxHqqRounds = 20;
void add_hqq_changes(const QuantizationScheme& scheme, std::span<const float> values,
                     int64_t columns, std::span<float, kMaxHqqRounds> changes);
int hqq_rounds(std::span<const float, kMaxHqqRounds> changes);

}  // namespace ferry::graph
