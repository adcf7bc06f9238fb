#include "core/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace ferry::dtype_test {
namespace {

TEST(DType, NamesAndCodesFindTheirRow) {
  for (int i = 0; i < 23; ++i) {
    const DTypeInfo& info = dtype_info(static_cast<DType>(i));
    EXPECT_EQ(dtype_from_name(info.name), info.dtype);
    if (!info.safetensors.empty()) {
      EXPECT_EQ(dtype_from_safetensors(info.safetensors), info.dtype);
    }
    if (info.executorch < 0) continue;
    EXPECT_EQ(dtype_from_executorch(info.executorch), info.dtype);
  }
}

TEST(DType, UnknownNamesAreNotFound) {
  EXPECT_FALSE(dtype_from_name("BF16"));
  EXPECT_FALSE(dtype_from_safetensors("bf16"));
  EXPECT_FALSE(dtype_from_safetensors("F32 "));
  EXPECT_FALSE(dtype_from_safetensors(""));
  EXPECT_FALSE(dtype_from_executorch(-1));
  EXPECT_FALSE(dtype_from_executorch(8));
}

TEST(Shape, IsShownAsAList) {
  EXPECT_EQ(to_string(Shape{}), "[]");
  EXPECT_EQ(to_string(Shape{2, 3}), "[2, 3]");
}

TEST(DType, ShapesOfSubByteTypesFillWholeBytes) {
  EXPECT_EQ(bytes_of(DType::kI4, {3, 4}), 6U);
  // The tensor fills whole bytes, but its rows do not.
  EXPECT_EQ(bytes_of(DType::kI4, {2, 3}), std::nullopt);
  EXPECT_EQ(bytes_of(DType::kI4, {}), std::nullopt);
  EXPECT_EQ(bytes_of(DType::kI4, {0, 2}), 0U);
  EXPECT_EQ(bytes_of(DType::kF6E2M3, {2, 4}), 6U);
  EXPECT_EQ(bytes_of(DType::kF6E2M3, {4, 2}), std::nullopt);
  EXPECT_EQ(bytes_of(DType::kBF16, {}), 2U);
  EXPECT_EQ(bytes_of(DType::kF64, {3, 5}), 120U);
  EXPECT_EQ(bytes_of(DType::kF32, {-1}), std::nullopt);
  EXPECT_EQ(bytes_of(DType::kF32, {int64_t{1} << 58}), std::nullopt);  // 2^63 bits
  EXPECT_EQ(bytes_of(DType::kF32, {int64_t{1} << 57}), uint64_t{1} << 59);
}

// The compiler's own half type is the reference. On ARM, GCC 12 has it in C++ under its older name
// only.
#if defined(__FLT16_MAX__) || defined(__aarch64__)
#if defined(__aarch64__)
using Half = __fp16;
#else
using Half = _Float16;
#endif

TEST(DType, EveryHalfHasTheValueOfTheCompilersHalf) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float expected = static_cast<float>(std::bit_cast<Half>(half));
    const float value = f16_to_f32(half);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value))));
    } else {
      EXPECT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(expected)) << bits;
      EXPECT_EQ(f32_to_f16(value), half);
    }
  }
}

TEST(DType, RoundingToHalfEqualsTheCompilers) {
  // This step visits ties, values next to ties, subnormals and overflow.
  for (uint64_t bits = 0; bits < 0x7f800000u; bits += 1021) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    const auto expected = std::bit_cast<uint16_t>(static_cast<Half>(value));
    ASSERT_EQ(f32_to_f16(value), expected) << value;
    ASSERT_EQ(f32_to_f16(-value), expected | 0x8000) << value;
  }
}

TEST(DType, TiesBetweenHalvesGoToEven) {
  for (uint32_t half = 0; half < 0x7bff; ++half) {
    const float low = f16_to_f32(static_cast<uint16_t>(half));
    const float high = f16_to_f32(static_cast<uint16_t>(half + 1));
    const float middle = low + (high - low) / 2;
    const auto expected = std::bit_cast<uint16_t>(static_cast<Half>(middle));
    ASSERT_EQ(f32_to_f16(middle), expected);
    ASSERT_EQ(expected % 2, 0);
  }
}
#endif

TEST(DType, BFloat16RoundsToNearestEven) {
  struct Case {
    uint32_t f32;
    uint16_t bf16;
  };
  const Case cases[] = {
      {0x3f800000, 0x3f80},                        // 1
      {0x3f808000, 0x3f80},                        // tie, even below
      {0x3f818000, 0x3f82},                        // tie, even above
      {0x3f808001, 0x3f81},                        // just over a tie
      {0x3f80ffff, 0x3f81}, {0x7f7fffff, 0x7f80},  // largest finite rounds to infinity
      {0x80000001, 0x8000},                        // tiny negative keeps its sign
      {0x7f800000, 0x7f80},                        // infinity
      {0x7f800001, 0x7fc0},                        // NaN whose payload is in the lost half
      {0xffc12345, 0xffc1},
  };
  for (const Case& c : cases) EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(c.f32)), c.bf16) << c.f32;
}

TEST(DType, BFloat16IsTheUpperHalf) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = bf16_to_f32(static_cast<uint16_t>(bits));
    EXPECT_EQ(std::bit_cast<uint32_t>(value), bits << 16);
    if (std::isnan(value)) continue;
    EXPECT_EQ(f32_to_bf16(value), bits);
  }
}

}  // namespace
}  // namespace ferry::dtype_test
