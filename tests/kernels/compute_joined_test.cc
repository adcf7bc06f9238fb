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
  std::vector<float> joined, whole, rest;
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
    for (int64_t row = c.columns ? 0 : c.count; row < c.k; ++row) {
      const float* const from = pieces.joined.data() + (item * c.k + row) * c.n;
      pieces.rest.insert(pieces.rest.end(), from + (c.columns ? c.count : 0), from + c.n);
    }
  }
  return pieces;
}

// The two pieces with the second one as a part of the whole matrix, or by itself.
JoinedMatrix matrix_of(const Case& c, DType dtype, const Pieces& pieces, bool whole) {
  JoinedMatrix b{.dtype = dtype,
                 .first = pieces.first.data(),
                 .scale = kScale,
                 .zero_point = kZeroPoint,
                 .columns = c.columns,
                 .count = size_t(c.count),
                 .stored = size_t(c.count),
                 .first_stride = size_t(c.columns ? c.count : c.n),
                 .first_item = size_t(c.count * (c.columns ? c.k : c.n)),
                 .rest = pieces.rest.data(),
                 .rest_stride = size_t(c.columns ? c.n - c.count : c.n),
                 .rest_item = pieces.rest.size() / size_t(c.batch)};
  if (whole) {
    b.rest = pieces.whole.data() + (c.columns ? c.count : c.count * c.n);
    b.rest_stride = size_t(c.n);
    b.rest_item = size_t(c.k * c.n);
  }
  return b;
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
        for (const bool whole : {false, true}) {
          const JoinedMatrix b = matrix_of(c, dtype, pieces, whole);
          const auto joined = [&](ThreadPool& pool) {
            std::vector<float> out(expected.size(), kNan);
            joined_bmm_f32(
                {a.data(), b, out.data(), size_t(c.batch), size_t(c.m), size_t(c.n), size_t(c.k)},
                pool);
            return out;
          };
          expect_same_with_any_pool(joined);
          EXPECT_EQ(
              std::memcmp(joined(one).data(), expected.data(), expected.size() * sizeof(float)), 0);
        }
      });
    }
  }
}

// The first piece with so many columns of each row in memory, or of rows of each matrix, in
// `memory`. Those behind its end are NaN, and those that are left out must be 0.
JoinedMatrix packed(const Case& c, JoinedMatrix b, int64_t stored, std::vector<std::byte>& memory) {
  const auto element = static_cast<size_t>(dtype_bytes(b.dtype));
  const size_t pieces = static_cast<size_t>(c.columns ? c.batch * c.k : c.batch);
  const size_t width = c.columns ? element : element * static_cast<size_t>(c.n);
  const size_t from = width * b.count, to = width * static_cast<size_t>(stored);
  memory.assign(pieces * to, std::byte{0xff});
  for (size_t i = 0; i < pieces; ++i) {
    std::memcpy(memory.data() + i * to, static_cast<const std::byte*>(b.first) + i * from,
                std::min(from, to));
  }
  b.first = memory.data();
  b.stored = std::min(size_t(stored), b.count);
  b.first_stride = size_t(c.columns ? stored : c.n);
  b.first_item = size_t(stored * (c.columns ? c.k : c.n));
  return b;
}

// Makes the columns of the first piece 0 from `begin` on.
void clear_columns(const Case& c, DType dtype, int64_t begin, Pieces& pieces) {
  const auto element = static_cast<size_t>(dtype_bytes(dtype));
  const int64_t rows = c.columns ? c.k : c.count, columns = c.columns ? c.count : c.n;
  auto* const first = reinterpret_cast<std::byte*>(pieces.first.data());
  for (int64_t item = 0; item < c.batch; ++item) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t j = 0; j < columns; ++j) {
        if ((c.columns ? j : r) < begin) continue;
        const uint16_t zero = is_encoded(dtype) ? kZeroPoint : 0;
        const uint32_t code = zero;
        std::memcpy(first + static_cast<size_t>((item * rows + r) * columns + j) * element, &code,
                    element);
        pieces.joined[static_cast<size_t>((item * c.k + r) * c.n + j)] = 0;
      }
    }
  }
}

// Attention of a few rows, and of many, against its steps with whole matrices.
TEST(MaskedAttention, HasTheBitsOfItsSteps) {
  struct Shape {
    int64_t batch, groups, tokens, dim, value_dim, context, length;  // length: cached columns shown
  };
  const Shape shapes[] = {{3, 3, 1, 64, 64, 500, 130},
                          {1, 1, 1, 7, 5, 70, 0},
                          {2, 4, 4, 16, 24, 300, 250},
                          {8, 1, 3, 32, 33, 129, 65},
                          {2, 3, 7, 20, 16, 200, 77}};
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kU8}) {
    SCOPED_TRACE(dtype_name(dtype));
    for (const Shape& s : shapes) {
      const int64_t rows = s.groups * s.tokens, count = s.context - s.tokens;
      SCOPED_TRACE(testing::Message() << rows << " rows, context " << s.context);
      const Case key_case{s.batch, rows, s.context, s.dim, count, true};
      const Case value_case{s.batch, rows, s.value_dim, s.context, count, false};
      Pieces keys = pieces_of(key_case, dtype), values = pieces_of(value_case, dtype);
      // The mask shows some columns that are not in memory.
      const int64_t held = std::min(count, std::max(s.length - 3, int64_t{1}));
      clear_columns(key_case, dtype, held, keys);
      clear_columns(value_case, dtype, held, values);
      const auto query = random_values(static_cast<size_t>(s.batch * rows * s.dim), 7);
      std::vector<float> mask(static_cast<size_t>(s.tokens * s.context), -65504.0f);
      for (int64_t t = 0; t < s.tokens; ++t) {
        float* const row = mask.data() + t * s.context;
        std::fill_n(row, s.length, 0.0f);
        std::fill_n(row + count, t + 1, 0.0f);
      }
      on_every_target([&] {
        ThreadPool one(1);
        std::vector<float> scores(static_cast<size_t>(s.batch * rows * s.context));
        bmm_f32(query.data(), keys.joined.data(), scores.data(), s.batch, rows, s.context, s.dim,
                one);
        for (int64_t r = 0; r < s.batch * rows; ++r) {
          float* const row = scores.data() + r * s.context;
          add_f32(row, mask.data() + r % s.tokens * s.context, row, s.context);
          softmax_row_f32(row, row, s.context);
        }
        std::vector<float> expected(static_cast<size_t>(s.batch * rows * s.value_dim));
        bmm_f32(scores.data(), values.joined.data(), expected.data(), s.batch, rows, s.value_dim,
                s.context, one);
        std::vector<SeenColumns> seen(1);
        seen[0].find(mask.data(), s.tokens, s.context);
        int64_t stored = count;
        std::vector<std::byte> key_memory, value_memory;
        const auto attention = [&](ThreadPool& pool) {
          std::vector<float> out(expected.size(), kNan);
          masked_attention_f32(
              {.query = query.data(),
               .keys =
                   packed(key_case, matrix_of(key_case, dtype, keys, false), stored, key_memory),
               .values = packed(value_case, matrix_of(value_case, dtype, values, false), stored,
                                value_memory),
               .mask = mask.data(),
               .seen = seen,
               .out = out.data(),
               .batch = size_t(s.batch),
               .groups = size_t(s.groups),
               .tokens = size_t(s.tokens),
               .dim = size_t(s.dim),
               .value_dim = size_t(s.value_dim),
               .context = size_t(s.context)},
              pool);
          return out;
        };
        for (const int64_t columns : {count, count + 5, held}) {
          SCOPED_TRACE(columns);
          stored = columns;
          expect_same_with_any_pool(attention);
          EXPECT_EQ(
              std::memcmp(attention(one).data(), expected.data(), expected.size() * sizeof(float)),
              0);
        }
      });
    }
  }
}

}  // namespace
}  // namespace ferry::kernels::compute_joined_test
