// Rows of Hadamard transforms: Sylvester's matrix by its definition, the matrix of order 28 by what
// makes it one.
#include <bit>

#include "tests/runner/op_cases.h"

namespace ferry::runner::hadamard_test {
namespace {

const std::string kName = "llama::fast_hadamard_transform.out";

Values random_rows(int64_t rows, int64_t width) {
  Values x = f32({rows, width}, std::vector<double>(static_cast<size_t>(rows * width)));
  for (size_t i = 0; i < x.values.size(); ++i) {
    x.values[i] = static_cast<double>((i * 37 + 11) % 64) / 32 - 1;
  }
  return x;
}

TEST(Hadamard, AnEntryOfSylvestersMatrixIsTheParityOfCommonBits) {
  for (const uint64_t width : {1, 2, 8, 64}) {
    const Values x = random_rows(3, static_cast<int64_t>(width));
    Values want = x;
    for (size_t row = 0; row < 3; ++row) {
      for (uint64_t i = 0; i < width; ++i) {
        double sum = 0;
        for (uint64_t j = 0; j < width; ++j) {
          sum += (std::popcount(i & j) % 2 == 0 ? 1 : -1) * x.values[row * width + j];
        }
        want.values[row * width + i] = sum / std::sqrt(static_cast<double>(width));
      }
    }
    check_cases({{kName, {x}, {want}}});
  }
}

TEST(Hadamard, RowsOfTheMatrixOfOrder28AreOrthogonal) {
  Values identity = f32({28, 28}, std::vector<double>(28 * 28));
  for (size_t i = 0; i < 28; ++i) identity.values[i * 29] = 1;
  const auto rows = run_op(kName, {identity}, {identity});
  ASSERT_TRUE(rows) << rows.error().message;
  const std::vector<double>& h = (*rows)[0].values;
  for (size_t i = 0; i < 28; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double product = 0;
      for (size_t k = 0; k < 28; ++k) product += h[i * 28 + k] * h[j * 28 + k];
      EXPECT_EQ(product, i == j ? 28 : 0) << i << " and " << j;
    }
  }
}

TEST(Hadamard, RowsOfOtherLengthsAndDtypesAreRefused) {
  check_refused({
      {kName, {random_rows(2, 12)}, {random_rows(2, 12)}, "2^n or 28 * 2^n"},
      {kName, {random_rows(2, 84)}, {random_rows(2, 84)}, "2^n or 28 * 2^n"},
      {kName, {f32({}, {1})}, {f32({}, {})}, "no dimensions"},
      {kName, {i64({2}, {1, 2})}, {i64({2}, {})}, "must be f32, f64 or f16"},
      {kName, {random_rows(2, 4)}, {i64({2, 4}, {})}, "dtype"},
      {kName, {random_rows(2, 4)}, {f32({4, 2}, {})}, "cannot take"},
  });
}

}  // namespace
}  // namespace ferry::runner::hadamard_test
