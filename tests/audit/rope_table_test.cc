#include "audit/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ferry::audit::rope_table_test {
namespace {

constexpr int kPositions = 64, kColumns = 8;

// Returns value(position, column) for all positions and columns, row by row.
template <class F>
std::vector<float> table(F value) {
  std::vector<float> out;
  for (int p = 0; p < kPositions; ++p) {
    for (int c = 0; c < kColumns; ++c) out.push_back(static_cast<float>(value(p, c)));
  }
  return out;
}

double angle(int position, int column) {
  return position / std::pow(10000.0, 2.0 * column / (2 * kColumns));
}

std::string_view kind_of(const std::vector<float>& values, DType dtype = DType::kF32) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(dtype_bytes(dtype)));
  from_f32(dtype, values.data(), bytes.data(), values.size());
  return rope_table(dtype, {1, kPositions, kColumns}, bytes);
}

TEST(RopeTable, CosinesAndSinesOfAnyScaleAndSign) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_EQ(kind_of(table([](int p, int c) { return std::cos(angle(p, c)); }), dtype), "cos");
    EXPECT_EQ(kind_of(table([](int p, int c) { return std::sin(angle(p, c)); }), dtype), "sin");
  }
  EXPECT_EQ(kind_of(table([](int p, int c) { return 1.3 * std::cos(angle(p, c)); })), "cos");
  EXPECT_EQ(kind_of(table(
                [](int p, int c) { return (c < kColumns / 2 ? -1 : 1) * std::sin(angle(p, c)); })),
            "sin");
}

TEST(RopeTable, OtherConstantsAreNone) {
  EXPECT_EQ(kind_of(table([](int, int) { return 1.0; })), "");
  EXPECT_EQ(kind_of(table([](int, int) { return 0.0; })), "");
  EXPECT_EQ(kind_of(table([](int p, int) { return p; })), "");
  EXPECT_EQ(kind_of(table([](int p, int c) { return std::cos(angle(p * p, c)); })), "");
  EXPECT_EQ(kind_of(table([](int p, int c) { return p == 0 ? 0 : std::sin(p * 7.3 + c * c); })),
            "");
  EXPECT_EQ(kind_of(table([](int p, int c) { return p == 1 ? NAN : std::cos(angle(p, c)); })), "");
}

TEST(RopeTable, TooFewBytesAndOddShapesAreNone) {
  const std::vector<std::byte> bytes(64);
  EXPECT_EQ(rope_table(DType::kF32, {64, 8}, bytes), "");
  EXPECT_EQ(rope_table(DType::kF32, {}, bytes), "");
  EXPECT_EQ(rope_table(DType::kF32, {16, 0}, bytes), "");
  EXPECT_EQ(rope_table(DType::kF32, {INT64_MAX, INT64_MAX}, bytes), "");
  EXPECT_EQ(rope_table(DType::kI32, {4, 4}, bytes), "");
}

}  // namespace
}  // namespace ferry::audit::rope_table_test
