// joined_bmm_f32 gives the bits of bmm_f32 on the joined matrix, on every instruction set and with
// any number of threads.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/compute.h"
#include "kernels/joined.h"
#include "tests/kernels/compute_testing.h"

namespace ferry::kernels::compute_joined_test {
namespace {

constexpr float kScale = 0.0371f;
constexpr int32_t kZeroPoint = 113;

struct Case {
  int64_t batch, m, n, k, count;
  bool columns;
};

// A matrix in two pieces, and as one.
struct Pieces {
  std::vector<char> first;
  std::vector<float> joined, whole;
};

std::vector<float> as_stored(DType dtype, std::vector<char>& stored, size_t n) {
  const auto bytes = static_cast<size_t>(dtype_bytes(dtype));
  stored.resize(n * bytes);
  std::vector<float> values = random_values(n, 3);
  if (dtype != DType::kU8 && dtype != DType::kU16) {
    cast(DType::kF32, values.data(), dtype, stored.data(), static_cast<int64_t>(n));
    cast(dtype, stored.data(), DType::kF32, values.data(), static_cast<int64_t>(n));
    return values;
  }
  for (size_t i = 0; i < n; ++i) {
    const auto code = static_cast<uint16_t>(i * 7919 % (dtype == DType::kU8 ? 256 : 65536));
    std::memcpy(stored.data() + i * bytes, &code, bytes);
    values[i] = static_cast<float>(int32_t{code} - kZeroPoint) * kScale;
  }
  return values;
}

Pieces pieces_of(const Case& c, DType dtype) {
  Pieces pieces;
  const int64_t rows = c.columns ? c.k : c.count, columns = c.columns ? c.count : c.n;
  const std::vector<float> first =
      as_stored(dtype, pieces.first, static_cast<size_t>(c.batch * rows * columns));
  pieces.joined = random_values(static_cast<size_t>(c.batch * c.k * c.n), 5);
  pieces.whole = pieces.joined;
  for (int64_t item = 0; item < c.batch; ++item) {
    for (int64_t row = 0; row < rows; ++row) {
      const auto from = static_cast<size_t>((item * rows + row) * columns);
      const auto to = static_cast<size_t>((item * c.k + row) * c.n);
      std::copy_n(first.data() + from, columns, pieces.joined.data() + to);
      std::fill_n(pieces.whole.data() + to, columns, kNan);  // kernels must not read these
    }
  }
  return pieces;
}

TEST(JoinedBmm, HasTheBitsOfTheJoinedMatrix) {
  const Case cases[] = {
      {1, 1, 1, 2, 1, false},     {2, 1, 37, 16, 36, true},   {2, 2, 24, 45, 44, false},
      {3, 3, 130, 7, 100, true},  {1, 2, 300, 9, 299, true},  {2, 16, 70, 131, 130, false},
      {2, 17, 70, 131, 3, false}, {2, 19, 131, 70, 64, true}, {1, 33, 129, 260, 129, false},
      {2, 40, 65, 130, 1, true},  {1, 2, 5000, 6, 4990, true}};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kU8, DType::kU16}) {
    SCOPED_TRACE(dtype_name(dtype));
    for (const Case& c : cases) {
      SCOPED_TRACE(testing::Message() << c.m << " x " << c.k << " x " << c.n << ", " << c.count);
      const Pieces pieces = pieces_of(c, dtype);
      const auto a = random_values(static_cast<size_t>(c.batch * c.m * c.k), 7);
      on_every_target([&] {
        ThreadPool one(1);
        std::vector<float> expected(static_cast<size_t>(c.batch * c.m * c.n));
        bmm_f32(a.data(), pieces.joined.data(), expected.data(), c.batch, c.m, c.n, c.k, one);
        const JoinedMatrix b = {dtype,           pieces.first.data(), kScale, kZeroPoint, c.columns,
                                size_t(c.count), pieces.whole.data()};
        const auto joined = [&](ThreadPool& pool) {
          std::vector<float> out(expected.size(), kNan);
          joined_bmm_f32(
              {a.data(), b, out.data(), size_t(c.batch), size_t(c.m), size_t(c.n), size_t(c.k)},
              pool);
          return out;
        };
        expect_same_with_any_pool(joined);
        EXPECT_EQ(std::memcmp(joined(one).data(), expected.data(), expected.size() * sizeof(float)),
                  0);
      });
    }
  }
}

}  // namespace
}  // namespace ferry::kernels::compute_joined_test
