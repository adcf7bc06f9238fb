#include "runner/static_program/attention_mask.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "runner/sampler.h"

namespace ferry::runner::attention_mask_test {
namespace {

constexpr MaskValues kBytes = {{1, 1}, {0, 1}};  // one byte for each column: visible or not

std::vector<int32_t> causal(int64_t n) {
  std::vector<int32_t> parents(static_cast<size_t>(n));
  std::iota(parents.begin(), parents.end(), -1);
  return parents;
}
std::vector<int32_t> iota(int64_t n) {
  std::vector<int32_t> offsets(static_cast<size_t>(n));
  std::iota(offsets.begin(), offsets.end(), 0);
  return offsets;
}

// Computes the mask by its rule, column by column.
bool sees(const std::vector<int32_t>& parents, const std::vector<int32_t>& offsets, int64_t ar,
          int64_t cl, int64_t n_past, std::optional<int64_t> window, int64_t row, int64_t column) {
  if (column == cl - ar + row) return true;
  if (row >= std::ssize(parents)) return false;
  const int64_t here = n_past + offsets[static_cast<size_t>(row)];
  if (column < n_past) return !window || here - column < *window;
  if (column < cl - ar) return false;
  int64_t ancestor = parents[static_cast<size_t>(row)];
  while (ancestor >= 0 && ancestor != column - (cl - ar)) {
    ancestor = parents[static_cast<size_t>(ancestor)];
  }
  return ancestor >= 0 &&
         (!window || here - n_past - offsets[static_cast<size_t>(ancestor)] < *window);
}

void expect_rule(const AttentionMask& mask, const std::vector<int32_t>& parents,
                 const std::vector<int32_t>& offsets, int64_t ar, int64_t cl,
                 std::optional<int64_t> window) {
  for (int64_t row = 0; row < ar; ++row) {
    for (int64_t column = 0; column < cl; ++column) {
      EXPECT_EQ(mask.bytes()[static_cast<size_t>(row * cl + column)] == std::byte{1},
                sees(parents, offsets, ar, cl, mask.n_past(), window, row, column))
          << "row " << row << " column " << column << " n_past " << mask.n_past();
    }
  }
}

std::vector<std::optional<int64_t>> windows() {
  return {std::nullopt, 1, 2, 3, 4, 5, 8, 11, 12, 13, 100};
}

TEST(AttentionMask, CausalCallsSeeTheCacheAndWhatCameBeforeWithinTheWindow) {
  constexpr int64_t kCl = 12;
  for (const int64_t ar : {1, 3, 4, 8}) {
    for (const auto& window : windows()) {
      for (int64_t n_past = 0; n_past <= kCl - ar; ++n_past) {
        AttentionMask mask(kBytes, ar, kCl, window);
        mask.init(causal(ar), iota(ar), n_past);
        expect_rule(mask, causal(ar), iota(ar), ar, kCl, window);
      }
    }
  }
}

TEST(AttentionMask, UpdatesGiveWhatABeginningWouldHaveGiven) {
  constexpr int64_t kCl = 14, kAr = 4;
  for (const auto& window : windows()) {
    for (const int64_t step : {1, 3, 4}) {
      AttentionMask mask(kBytes, kAr, kCl, window), fresh(kBytes, kAr, kCl, window);
      mask.init(causal(kAr), iota(kAr), 0);
      for (int64_t n = step; n <= kCl - kAr; n += step) {
        mask.update(step);
        fresh.init(causal(kAr), iota(kAr), n);
        EXPECT_EQ(std::vector(mask.bytes().begin(), mask.bytes().end()),
                  std::vector(fresh.bytes().begin(), fresh.bytes().end()))
            << n;
      }
    }
  }
}

// Two branches start at row 0, positions go back, and rows at the end have no parent. Bytes that
// update() does not write keep a mark that no mask has.
TEST(AttentionMask, UpdatesWriteOnlyColumnsThatChange) {
  constexpr int64_t kAr = 2, kCl = 14, kPast = 5, kKept = 2, kWindow = 4;
  for (const std::optional<int64_t> window : {std::optional<int64_t>(), std::optional(kWindow)}) {
    AttentionMask mask(kBytes, kAr, kCl, window);
    mask.init(causal(kAr), iota(kAr), kPast);
    const std::span<const std::byte> bytes = mask.bytes();
    std::memset(const_cast<std::byte*>(bytes.data()), 7, bytes.size());
    mask.update(kKept);
    for (int64_t row = 0; row < kAr; ++row) {
      const int64_t first = kPast + row + 1 - kWindow;  // the first column that the row saw before
      for (int64_t column = 0; column < kCl; ++column) {
        const bool appears = column >= kPast && column < kPast + kKept;
        const bool leaves = window && column >= first && column < first + kKept;
        EXPECT_EQ(bytes[static_cast<size_t>(row * kCl + column)] != std::byte{7}, appears || leaves)
            << "row " << row << " column " << column;
      }
    }
  }
}

TEST(AttentionMask, BranchesSeeTheirAncestorsAndRowsBeyondTheMapSeeThemselves) {
  constexpr int64_t kCl = 16, kAr = 8;
  const std::vector<int32_t> parents = {-1, 0, 1, 0, 3, 0}, offsets = {0, 1, 2, 1, 2, 1};
  for (const auto& window : windows()) {
    AttentionMask mask(kBytes, kAr, kCl, window);
    mask.init(parents, offsets, 2);
    expect_rule(mask, parents, offsets, kAr, kCl, window);
    mask.update(3);
    expect_rule(mask, parents, offsets, kAr, kCl, window);
    mask.update(1);
    expect_rule(mask, parents, offsets, kAr, kCl, window);
  }
}

TEST(AttentionMask, ASecondBeginningForgetsTheFirst) {
  AttentionMask mask(kBytes, 4, 12, 3);
  mask.init(causal(4), iota(4), 8);
  mask.init({}, {}, 2);
  expect_rule(mask, {}, {}, 4, 12, 3);
  mask.update(2);
  expect_rule(mask, {}, {}, 4, 12, 3);
}

TEST(MaskValues, AreFiniteInEachDtype) {
  EXPECT_EQ(std::bit_cast<float>(mask_values(DType::kF32, {}, "m")->masked.bits), -65535.0f);
  const auto f16 = mask_values(DType::kF16, {}, "m").value();
  EXPECT_EQ(f16_to_f32(static_cast<uint16_t>(f16.masked.bits)), -65504.0f);
  // This is why f16 has a value of its own.
  EXPECT_TRUE(std::isinf(f16_to_f32(f32_to_f16(kMaskedF32))));
  const auto bf16 = mask_values(DType::kBF16, {}, "m").value();
  EXPECT_EQ(bf16_to_f32(static_cast<uint16_t>(bf16.masked.bits)), -65536.0f);
  EXPECT_EQ(bf16.masked.bits, f32_to_bf16(kMaskedF32));
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const auto values = mask_values(dtype, {}, "m").value();
    EXPECT_EQ(values.attend.bits, 0u);
    EXPECT_EQ(values.attend.bytes, static_cast<size_t>(dtype_bytes(dtype)));
    EXPECT_EQ(values.masked.bytes, values.attend.bytes);
  }
}

TEST(MaskValues, OfCodesComeFromTheEncoding) {
  const auto u16 = mask_values(DType::kU16, Encoding{255.0 / 65535, 65535}, "m").value();
  EXPECT_EQ(u16.attend.bits, 65535u);
  EXPECT_EQ(u16.masked.bits, 0u);
  EXPECT_EQ(u16.attend.bytes, 2u);
  const auto u8 = mask_values(DType::kU8, Encoding{1, 255}, "m").value();
  EXPECT_EQ(u8.attend.bits, 255u);
  EXPECT_EQ(u8.masked.bits, 0u);
  EXPECT_EQ(u8.attend.bytes, 1u);
  EXPECT_EQ(mask_values(DType::kU8, Encoding{1, 200}, "m")->attend.bits, 200u);
}

TEST(MaskValues, ThatCannotMaskAreRefused) {
  struct Case {
    DType dtype;
    std::optional<Encoding> encoding;
    std::string message;
  };
  const Case cases[] = {
      {DType::kI32, {}, "m: a mask of i32; supported are f32, f16, bf16, u16 and u8"},
      {DType::kF64, {}, "m: a mask of f64; supported are f32, f16, bf16, u16 and u8"},
      {DType::kU8, {}, "m: a mask of u8 needs an encoding in which 0 is a code"},
      {DType::kU8, Encoding{1, 256}, "m: a mask of u8 needs an encoding in which 0 is a code"},
      {DType::kU16, Encoding{0, 9}, "m: a mask of u16 needs an encoding in which 0 is a code"},
      {DType::kU16, Encoding{1, 0},
       "m: the lowest number of its encoding is 0, which masks nothing: at most -20 is needed"},
      {DType::kU8, Encoding{0.05, 255},
       "m: the lowest number of its encoding is -12.75, which masks nothing: at most -20 is "
       "needed"}};
  for (const Case& c : cases) {
    const auto values = mask_values(c.dtype, c.encoding, "m");
    ASSERT_FALSE(values);
    EXPECT_EQ(values.error().message, c.message);
  }
}

// Returns softmax(scores + mask), where hidden columns have `masked`.
std::vector<double> weights(const std::vector<float>& scores, const std::vector<bool>& hidden,
                            float masked) {
  std::vector<float> sums;
  for (size_t i = 0; i < scores.size(); ++i) sums.push_back(scores[i] + (hidden[i] ? masked : 0));
  const float top = *std::ranges::max_element(sums);
  std::vector<double> out;
  double total = 0;
  for (float sum : sums) total += out.emplace_back(std::exp(double{sum} - top));
  for (double& w : out) w /= total;
  return out;
}

TEST(MaskValues, MaskLikeMinusInfinity) {
  Random random(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<float> scores;
    std::vector<bool> hidden;
    for (int i = 0; i < 16; ++i) {
      scores.push_back(static_cast<float>(random.uniform() * 60 - 30));
      hidden.push_back(i > 0 && random.uniform() < 0.5);
    }
    const auto exact = weights(scores, hidden, -INFINITY);
    for (const float masked : {kMaskedF32, kMaskedF16, kMaskedBF16}) {
      const auto got = weights(scores, hidden, masked);
      for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], exact[i], 1e-6);
      const auto all = weights(scores, std::vector<bool>(scores.size(), true), masked);
      for (double w : all) EXPECT_TRUE(std::isfinite(w));
    }
  }
}

}  // namespace
}  // namespace ferry::runner::attention_mask_test
