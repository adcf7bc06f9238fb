// The element types of GGUF, and the exact values of those that are stored in blocks.
//
// A block type stores `block_elements` consecutive elements of a row in `block_bytes` bytes. The
// values are those of ggml to the bit: every product and sum is rounded to f32 by itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/dtype.h"
#include "core/encoding.h"

namespace ferry::formats {

struct GgufType {
  uint32_t id;
  std::string_view name;  // ggml's name: "Q4_K"
  DType dtype;            // dtype of the values: f32 for block types
  // A type whose bytes are values has "blocks" of one element and no decode().
  BlockEncoding block;

  const BlockEncoding* encoding() const { return block.decode == nullptr ? nullptr : &block; }
};

// Returns nullptr for types that Ferry does not read.
const GgufType* find_gguf_type(uint32_t id);
// Returns the type with these values and this encoding(); nullptr where there is none.
const GgufType* find_gguf_type(DType dtype, const BlockEncoding* encoding);
// Returns the name of any type for messages: "IQ4_XS", or "999" where there is no such type.
std::string gguf_type_name(uint32_t id);

}  // namespace ferry::formats
