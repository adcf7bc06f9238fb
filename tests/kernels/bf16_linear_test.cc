// Products of bf16 by the instructions of the processor, on every set that it has.
#include "kernels/bf16_linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/dtype.h"
#include "kernels/compute.h"
#include "kernels/processor.h"
#include "tests/kernels/compute_testing.h"

namespace ferry::kernels::bf16_linear_test {
namespace {

std::vector<uint16_t> numbers(size_t n, uint32_t seed) {
  std::vector<uint16_t> result;
  for (const float value : random_values(n, seed)) result.push_back(f32_to_bf16(value));
  return result;
}

struct Matrices {
  Matrices(size_t rows, size_t columns, size_t depth)
      : m(rows), n(columns), k(depth), x(numbers(m * k, 1)), w(numbers(n * k, 2)), out(m * n) {}

  Bf16Product product() { return {x.data(), w.data(), out.data(), m, n, k}; }

  size_t m, n, k;
  std::vector<uint16_t> x, w, out;
};

std::vector<Bf16Instructions> available() {
  std::vector<Bf16Instructions> sets;
  if (processor().avx512_bf16) sets.push_back(Bf16Instructions::kAvx512);
  if (processor().amx_bf16) sets.push_back(Bf16Instructions::kAmx);
  if (processor().neon_bf16) sets.push_back(Bf16Instructions::kNeon);
  return sets;
}

TEST(Bf16Linear, GivesTheProductRoundedOnce) {
  if (available().empty()) GTEST_SKIP() << "the processor has no products of bf16";
  ThreadPool pool(2);
  for (const Bf16Instructions set : available()) {
    for (const size_t m : {1, 2, 5, 6, 7, 16, 17, 33, 48}) {
      for (const size_t n : {1, 3, 4, 15, 32, 33, 100}) {
        for (const size_t k : {1, 2, 31, 32, 33, 64, 95, 576}) {
          Matrices a(m, n, k);
          bf16_linear(a.product(), set, pool);
          for (size_t i = 0; i < m * n; ++i) {
            double sum = 0, size = 0;
            for (size_t c = 0; c < k; ++c) {
              const double term =
                  double{bf16_to_f32(a.x[i / n * k + c])} * double{bf16_to_f32(a.w[i % n * k + c])};
              sum += term;
              size += std::abs(term);
            }
            // Half a unit of bf16, and the rounding of sums in f32.
            ASSERT_NEAR(bf16_to_f32(a.out[i]), sum, std::abs(sum) / 256 + size * 1e-6)
                << m << " " << n << " " << k << " set " << static_cast<int>(set);
          }
        }
      }
    }
  }
}

TEST(Bf16Linear, ARowOfABatchHasTheBitsThatItHasAlone) {
  if (available().empty()) GTEST_SKIP() << "the processor has no products of bf16";
  ThreadPool one(1), two(2);
  for (const Bf16Instructions set : available()) {
    for (const size_t k : {259, 2048}) {  // rows of 2048 are copied with gaps
      Matrices batch(37, 203, k);
      bf16_linear(batch.product(), set, two);
      for (size_t row = 0; row < batch.m; ++row) {
        std::vector<uint16_t> out(batch.n);
        bf16_linear(
            {batch.x.data() + row * batch.k, batch.w.data(), out.data(), 1, batch.n, batch.k}, set,
            one);
        ASSERT_TRUE(std::equal(out.begin(), out.end(),
                               batch.out.begin() + static_cast<ptrdiff_t>(row * batch.n)));
      }
    }
  }
}

std::vector<uint16_t> linear_of(const Matrices& a) {
  std::vector<uint16_t> out(a.m * a.n);
  ThreadPool pool(2);
  linear(DType::kBF16, a.x.data(), a.w.data(), out.data(), static_cast<int64_t>(a.m),
         static_cast<int64_t>(a.n), static_cast<int64_t>(a.k), pool);
  return out;
}

std::vector<float> widened(const std::vector<uint16_t>& values) {
  std::vector<float> wide;
  for (const uint16_t value : values) wide.push_back(bf16_to_f32(value));
  return wide;
}

// linear() has the bits of f32, rounded, where nobody asks for the instructions.
TEST(Bf16Linear, IsUsedWhereItIsAskedFor) {
  for (const size_t m : {1, 19}) {
    Matrices a(m, 67, 576);
    std::vector<float> sums(a.m * a.n);
    ThreadPool pool(1);
    linear(DType::kF32, widened(a.x).data(), widened(a.w).data(), sums.data(),
           static_cast<int64_t>(a.m), static_cast<int64_t>(a.n), static_cast<int64_t>(a.k), pool);
    std::vector<uint16_t> in_f32;
    for (const float sum : sums) in_f32.push_back(f32_to_bf16(sum));
    EXPECT_EQ(linear_of(a), in_f32);
    const Bf16Choice instructions(true);
    if (bf16_instructions() != Bf16Instructions::kNone) {
      bf16_linear(a.product(), bf16_instructions(), pool);
      EXPECT_EQ(linear_of(a), a.out);
    }
    {
      const Bf16Choice exact(false);
      EXPECT_EQ(linear_of(a), in_f32);
    }
    EXPECT_TRUE(Bf16Choice::uses_instructions());
  }
}

TEST(Bf16Linear, TilesHoldPairsOfEveryRow) {
  Matrices a(19, 1, 37);
  const size_t tiles = tiles_along(a.k, kTileDepth), blocks = tiles_along(a.m, kTileSide);
  std::vector<uint16_t> packed(blocks * tiles * kTileValues, 0x7fc0);
  for (size_t block = 0; block < blocks; ++block) {
    pack_for_tiles(a.product(), block, packed.data());
  }
  for (size_t i = 0; i < packed.size(); ++i) {
    const size_t tile = i / kTileValues, within = i % kTileValues;
    const size_t row = tile / tiles * kTileSide + within / 2 % kTileSide;
    const size_t column = tile % tiles * kTileDepth + within / (2 * kTileSide) * 2 + within % 2;
    const bool inside = row < a.m && column < a.k;
    ASSERT_EQ(packed[i], inside ? a.x[row * a.k + column] : 0) << i;
  }
}

TEST(Bf16Linear, PairsHoldFourValuesOfEachRow) {
  Matrices a(5, 1, 10);
  std::vector<uint16_t> packed(3 * 3 * 8, 0x7fc0);
  for (size_t pair = 0; pair < 3; ++pair) pack_pair(a.product(), pair, packed.data());
  for (size_t i = 0; i < packed.size(); ++i) {
    const size_t row = i / 24 * 2 + i / 4 % 2, column = i % 24 / 8 * 4 + i % 4;
    const bool inside = row < a.m && column < a.k;
    ASSERT_EQ(packed[i], inside ? a.x[row * a.k + column] : 0) << i;
  }
}

}  // namespace
}  // namespace ferry::kernels::bf16_linear_test
