// BlockEncoding describes a stored form that packs several elements into one block of bytes, as the
// quantised types of GGUF do.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ferry {

inline constexpr size_t kMaxBlockElements = 256;

// A row is a whole number of blocks. Blocks have no alignment.
struct BlockEncoding {
  std::string_view name;  // in lower case, "q8_0"
  uint32_t elements = 0;  // per block; at most kMaxBlockElements
  uint32_t bytes = 0;     // per block
  // Writes the `elements` values of the block that begins at `block`.
  void (*decode)(const std::byte* block, float* out) = nullptr;
};

// The numbers that the codes of iq4_nl and iq4_xs stand for. Source: llama.cpp, ggml-common.h.
inline constexpr std::array<float, 16> kIq4Numbers = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace ferry
