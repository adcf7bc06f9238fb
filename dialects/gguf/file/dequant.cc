// No product and sum is contracted into one rounding (-ffp-contract=off): the values are defined
// with two roundings.
#include "dialects/gguf/file/dequant.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <utility>

namespace ferry::formats {
namespace {

uint32_t u8_at(const std::byte* p) { return std::to_integer<uint32_t>(*p); }
int32_t i8_at(const std::byte* p) { return static_cast<int8_t>(std::to_integer<uint8_t>(*p)); }

float f16_at(const std::byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof bits);
  return f16_to_f32(bits);
}

uint32_t u32_at(const std::byte* p) {
  uint32_t value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

float to_float(uint32_t value) { return static_cast<float>(static_cast<int32_t>(value)); }

// Returns the nibble of element j of 32: byte j holds element j in its low bits and element j + 16
// in its high bits.
uint32_t nibble(const std::byte* p, uint32_t j) {
  return j < 16 ? u8_at(p + j) & 0xfu : u8_at(p + j - 16) >> 4;
}

// Returns element j of 32 whose fifth bits are a word of their own.
uint32_t five_bits(const std::byte* low, uint32_t high, uint32_t j) {
  return nibble(low, j) | (((high >> j) & 1u) << 4);
}

// Q4_0: scale, nibbles; the zero is at 8.
void q4_0(const std::byte* block, float* out) {
  const float d = f16_at(block);
  for (uint32_t j = 0; j < 32; ++j) out[j] = d * (to_float(nibble(block + 2, j)) - 8.0f);
}

// Q4_1: scale, minimum, nibbles.
void q4_1(const std::byte* block, float* out) {
  const float d = f16_at(block), m = f16_at(block + 2);
  for (uint32_t j = 0; j < 32; ++j) out[j] = d * to_float(nibble(block + 4, j)) + m;
}

// Q5_0: scale, fifth bits, nibbles; the zero is at 16.
void q5_0(const std::byte* block, float* out) {
  const float d = f16_at(block);
  const uint32_t high = u32_at(block + 2);
  for (uint32_t j = 0; j < 32; ++j) out[j] = d * (to_float(five_bits(block + 6, high, j)) - 16.0f);
}

// Q5_1: scale, minimum, fifth bits, nibbles.
void q5_1(const std::byte* block, float* out) {
  const float d = f16_at(block), m = f16_at(block + 2);
  const uint32_t high = u32_at(block + 4);
  for (uint32_t j = 0; j < 32; ++j) out[j] = d * to_float(five_bits(block + 8, high, j)) + m;
}

// Q8_0: scale, signed bytes.
void q8_0(const std::byte* block, float* out) {
  const float d = f16_at(block);
  for (uint32_t j = 0; j < 32; ++j) out[j] = d * static_cast<float>(i8_at(block + 2 + j));
}

// Two bits of each of 256 elements in 64 bytes: halves of 128 elements have 32 bytes each, and
// within a half the elements j, j + 32, j + 64, j + 96 share a byte, from its low end.
uint32_t two_bits(const std::byte* p, size_t i) {
  return (u8_at(p + i / 128 * 32 + i % 32) >> (2 * (i / 32 % 4))) & 3u;
}

// Q2_K: a byte of scale and minimum for each 16 elements, two bits, scales of both.
void q2_k(const std::byte* block, float* out) {
  const std::byte* bits = block + 16;
  const float d = f16_at(block + 80), m = f16_at(block + 82);
  for (uint32_t i = 0; i < 256; ++i) {
    const uint32_t scale = u8_at(block + i / 16);
    out[i] = d * to_float(scale & 0xfu) * to_float(two_bits(bits, i)) - m * to_float(scale >> 4);
  }
}

// Returns scale g of 16. It has six bits with the zero at 32: low nibbles in 8 bytes, high pairs in
// 4.
int32_t q3_k_scale(const std::byte* scales, uint32_t g) {
  const uint32_t low = g < 8 ? u8_at(scales + g) & 0xfu : u8_at(scales + g - 8) >> 4;
  const uint32_t high = (u8_at(scales + 8 + g % 4) >> (2 * (g / 4))) & 3u;
  return static_cast<int32_t>(low | (high << 4)) - 32;
}

// Q3_K: third bits (bit k of byte j: element 32 k + j), two bits, scales, scale of the scales. A
// cleared third bit takes 4 off.
void q3_k(const std::byte* block, float* out) {
  const float d = f16_at(block + 108);
  for (uint32_t i = 0; i < 256; ++i) {
    const float scale = d * static_cast<float>(q3_k_scale(block + 96, i / 16));
    const uint32_t third = (u8_at(block + i % 32) >> (i / 32)) & 1u;
    const auto low = static_cast<int32_t>(two_bits(block + 32, i));
    out[i] = scale * static_cast<float>(low - (third ? 0 : 4));
  }
}

// Returns the six-bit scale and minimum of group j of 8, from 12 bytes. A group has 32 elements.
std::pair<uint32_t, uint32_t> k_scale_min(const std::byte* p, uint32_t j) {
  if (j < 4) return {u8_at(p + j) & 63u, u8_at(p + j + 4) & 63u};
  const uint32_t low = u8_at(p + j + 4);
  return {(low & 0xfu) | (u8_at(p + j - 4) >> 6 << 4), (low >> 4) | (u8_at(p + j) >> 6 << 4)};
}

// Returns the nibble of element i. Each 32 bytes hold the elements of two groups of 32, the first
// group in the low nibbles.
uint32_t k_nibble(const std::byte* p, size_t i) {
  const uint32_t byte = u8_at(p + i / 64 * 32 + i % 32);
  return i / 32 % 2 == 0 ? byte & 0xfu : byte >> 4;
}

// Q4_K and Q5_K: scales of the scales and of the minima, 12 bytes of scales and minima, for Q5_K
// the fifth bits (in the order of Q3_K's third bits), nibbles.
template <bool kFifthBit>
void q45_k(const std::byte* block, float* out) {
  const float d = f16_at(block), m = f16_at(block + 2);
  const std::byte* fifth = block + 16;
  const std::byte* low = kFifthBit ? fifth + 32 : fifth;
  for (uint32_t group = 0; group < 8; ++group) {
    const auto [scale, minimum] = k_scale_min(block + 4, group);
    const float group_d = d * to_float(scale), group_m = m * to_float(minimum);
    for (uint32_t j = 0; j < 32; ++j) {
      uint32_t q = k_nibble(low, group * 32 + j);
      if (kFifthBit) q |= ((u8_at(fifth + j) >> group) & 1u) << 4;
      out[group * 32 + j] = group_d * to_float(q) - group_m;
    }
  }
}

// Q6_K: nibbles, two bits, signed scales for each 16 elements, scale of the scales. In each half of
// 128 elements, 64 bytes of nibbles hold the first 64 elements in the low bits and the others in
// the high bits.
void q6_k(const std::byte* block, float* out) {
  const std::byte* high = block + 128;
  const float d = f16_at(block + 208);
  for (size_t i = 0; i < 256; ++i) {
    const uint32_t byte = u8_at(block + i / 128 * 64 + i % 64);
    const uint32_t low = i / 64 % 2 == 0 ? byte & 0xfu : byte >> 4;
    const auto q = static_cast<int32_t>(low | (two_bits(high, i) << 4)) - 32;
    out[i] = d * static_cast<float>(i8_at(block + 192 + i / 16)) * static_cast<float>(q);
  }
}

// Returns 2^(e - 128): half of the factor that the exponent e means, because the table below has
// doubled values.
float half_exponent(uint32_t e) {
  const uint32_t bits = e < 2 ? 0x00200000u << e : (e - 1) << 23;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// MXFP4: exponent, nibbles of 4-bit floats.
void mxfp4(const std::byte* block, float* out) {
  constexpr std::array<float, 8> kDoubled = {0, 1, 2, 3, 4, 6, 8, 12};
  const float d = half_exponent(u8_at(block));
  for (uint32_t j = 0; j < 32; ++j) {
    const uint32_t code = nibble(block + 1, j);
    const float magnitude = kDoubled[code & 7u];
    out[j] = d * (code > 8 ? -magnitude : magnitude);  // ggml has no negative zero
  }
}

// IQ4_NL: scale, nibbles; each stands for one of 16 numbers.
void iq4_nl(const std::byte* block, float* out) {
  const float d = f16_at(block);
  for (uint32_t j = 0; j < 32; ++j) out[j] = d * kIq4Numbers[nibble(block + 2, j)];
}

// IQ4_XS: scale of the scales, the high two bits of eight scales, the low four bits, nibbles; the
// zero of the scales is at 32.
void iq4_xs(const std::byte* block, float* out) {
  const float d = f16_at(block);
  for (uint32_t g = 0; g < 8; ++g) {
    const uint32_t low = u8_at(block + 4 + g / 2) >> 4 * (g % 2) & 0xfu;
    const uint32_t high = u8_at(block + 2 + g / 4) >> 2 * (g % 4) & 3u;
    const float scale = d * (to_float(low | high << 4) - 32.0f);
    const std::byte* codes = block + 8 + 16 * g;
    for (uint32_t j = 0; j < 32; ++j) out[32 * g + j] = scale * kIq4Numbers[nibble(codes, j)];
  }
}

constexpr std::array<GgufType, 21> kTypes = {{
    {0, "F32", DType::kF32, {"", 1, 4, nullptr}},
    {1, "F16", DType::kF16, {"", 1, 2, nullptr}},
    {2, "Q4_0", DType::kF32, {"q4_0", 32, 18, q4_0}},
    {3, "Q4_1", DType::kF32, {"q4_1", 32, 20, q4_1}},
    {6, "Q5_0", DType::kF32, {"q5_0", 32, 22, q5_0}},
    {7, "Q5_1", DType::kF32, {"q5_1", 32, 24, q5_1}},
    {8, "Q8_0", DType::kF32, {"q8_0", 32, 34, q8_0}},
    {10, "Q2_K", DType::kF32, {"q2_k", 256, 84, q2_k}},
    {11, "Q3_K", DType::kF32, {"q3_k", 256, 110, q3_k}},
    {12, "Q4_K", DType::kF32, {"q4_k", 256, 144, q45_k<false>}},
    {13, "Q5_K", DType::kF32, {"q5_k", 256, 176, q45_k<true>}},
    {14, "Q6_K", DType::kF32, {"q6_k", 256, 210, q6_k}},
    {20, "IQ4_NL", DType::kF32, {"iq4_nl", 32, 18, iq4_nl}},
    {23, "IQ4_XS", DType::kF32, {"iq4_xs", 256, 136, iq4_xs}},
    {24, "I8", DType::kI8, {"", 1, 1, nullptr}},
    {25, "I16", DType::kI16, {"", 1, 2, nullptr}},
    {26, "I32", DType::kI32, {"", 1, 4, nullptr}},
    {27, "I64", DType::kI64, {"", 1, 8, nullptr}},
    {28, "F64", DType::kF64, {"", 1, 8, nullptr}},
    {30, "BF16", DType::kBF16, {"", 1, 2, nullptr}},
    {39, "MXFP4", DType::kF32, {"mxfp4", 32, 17, mxfp4}},
}};

// Types of which only the name is known.
struct OtherType {
  uint32_t id;
  std::string_view name;
};
constexpr std::array<OtherType, 14> kOtherTypes = {{
    {9, "Q8_1"},
    {15, "Q8_K"},
    {16, "IQ2_XXS"},
    {17, "IQ2_XS"},
    {18, "IQ3_XXS"},
    {19, "IQ1_S"},
    {21, "IQ3_S"},
    {22, "IQ2_S"},
    {29, "IQ1_M"},
    {34, "TQ1_0"},
    {35, "TQ2_0"},
    {40, "NVFP4"},
    {41, "Q1_0"},
    {42, "Q2_0"},
}};

}  // namespace

const GgufType* find_gguf_type(uint32_t id) {
  for (const GgufType& type : kTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

const GgufType* find_gguf_type(DType dtype, const BlockEncoding* encoding) {
  for (const GgufType& type : kTypes) {
    if (type.dtype == dtype && type.encoding() == encoding) return &type;
  }
  return nullptr;
}

std::string gguf_type_name(uint32_t id) {
  if (const GgufType* type = find_gguf_type(id)) return std::string(type->name);
  for (const OtherType& type : kOtherTypes) {
    if (type.id == id) return std::string(type.name);
  }
  return fmt::to_string(id);
}

}  // namespace ferry::formats
