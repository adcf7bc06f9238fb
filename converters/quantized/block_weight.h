// Matrices of 4-bit floats in blocks of 32, which share an exponent: MXFP4, as GPT-OSS is released.
// Source: OCP Microscaling Formats; transformers, integrations/mxfp4.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/derived_source.h"

namespace ferry::converters {

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

}  // namespace ferry::converters
