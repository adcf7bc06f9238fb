#include "core/hadamard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

namespace ferry::hadamard_test {
namespace {

// Element (i, j) of the matrix is negative where i & j has an odd number of ones.
TEST(HadamardRotate, MultipliesEachRowBySylvestersMatrix) {
  for (const size_t width : {1U, 2U, 8U, 64U}) {
    std::vector<float> values(3 * width);
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * i % 17) - 5;
    std::vector<float> rotated = values;
    hadamard_rotate(rotated, width);
    for (size_t row = 0; row < 3; ++row) {
      for (size_t j = 0; j < width; ++j) {
        double sum = 0;
        for (size_t i = 0; i < width; ++i) {
          const double value = static_cast<double>(values[row * width + i]);
          sum += std::popcount(i & j) % 2 == 0 ? value : -value;
        }
        const double want = sum / std::sqrt(static_cast<double>(width));
        EXPECT_NEAR(static_cast<double>(rotated[row * width + j]), want, 1e-4);
      }
    }
    hadamard_rotate(rotated, width);
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(rotated[i], values[i], 1e-5F);
  }
}

}  // namespace
}  // namespace ferry::hadamard_test
