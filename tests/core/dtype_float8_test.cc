#include "core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace ferry::float8_test {
namespace {

float value_of(DType dtype, int code) {
  const std::byte stored[1] = {static_cast<std::byte>(code)};
  float out[1] = {};
  EXPECT_TRUE(float8_to_f32(dtype, stored, out));
  return out[0];
}

// These are the corner cases of the OCP specification, table 1.
TEST(Float8, HasTheValuesOfTheSpecification) {
  EXPECT_EQ(value_of(DType::kF8E4M3, 0x00), 0.0f);
  EXPECT_TRUE(std::signbit(value_of(DType::kF8E4M3, 0x80)));
  EXPECT_EQ(value_of(DType::kF8E4M3, 0x01), 0x1p-9f);
  EXPECT_EQ(value_of(DType::kF8E4M3, 0x07), 0x1.cp-7f);
  EXPECT_EQ(value_of(DType::kF8E4M3, 0x08), 0x1p-6f);
  EXPECT_EQ(value_of(DType::kF8E4M3, 0x7e), 448.0f);
  EXPECT_EQ(value_of(DType::kF8E4M3, 0xfe), -448.0f);
  EXPECT_TRUE(std::isnan(value_of(DType::kF8E4M3, 0x7f)));
  EXPECT_TRUE(std::isnan(value_of(DType::kF8E4M3, 0xff)));
  EXPECT_EQ(value_of(DType::kF8E5M2, 0x01), 0x1p-16f);
  EXPECT_EQ(value_of(DType::kF8E5M2, 0x03), 0x1.8p-15f);
  EXPECT_EQ(value_of(DType::kF8E5M2, 0x04), 0x1p-14f);
  EXPECT_EQ(value_of(DType::kF8E5M2, 0x7b), 57344.0f);
  EXPECT_EQ(value_of(DType::kF8E5M2, 0xfc), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(value_of(DType::kF8E5M2, 0x7d)));
  EXPECT_EQ(value_of(DType::kF8E8M0, 0), 0x1p-127f);
  EXPECT_EQ(value_of(DType::kF8E8M0, 127), 1.0f);
  EXPECT_EQ(value_of(DType::kF8E8M0, 254), 0x1p127f);
  EXPECT_TRUE(std::isnan(value_of(DType::kF8E8M0, 255)));
}

TEST(Float8, IsNoOtherType) {
  const std::byte stored[1] = {};
  float out[1] = {7.0f};
  EXPECT_FALSE(float8_to_f32(DType::kI8, stored, out));
  EXPECT_EQ(out[0], 7.0f);
}

}  // namespace
}  // namespace ferry::float8_test
