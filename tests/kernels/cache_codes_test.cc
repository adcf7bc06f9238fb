// Keys and values as codes of 8 and 4 bits: their layout, their errors, and attention to them. On
// every instruction set of this machine the bytes are equal.
#include "kernels/cache_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/compute.h"
#include "kernels/dtypes.h"
#include "tests/kernels/compute_testing.h"

namespace ferry::kernels::cache_codes_test {
namespace {

// Memory for the codes of a cache.
struct Held {
  CacheCodes codes;
  std::vector<std::byte> bytes;

  Held(size_t context, size_t heads, size_t dim, int bits)
      : codes{nullptr, context, heads, dim, bits} {
    bytes.resize(codes.bytes());
    codes.at = bytes.data();
  }
  void store(size_t position, const std::vector<float>& rows, ThreadPool& pool) {
    store_codes(codes, position, DType::kF32, rows.data(), rows.size() / codes.heads / codes.dim,
                pool);
  }
  std::vector<float> values(size_t position, size_t count, ThreadPool& pool) const {
    std::vector<float> rows(count * codes.heads * codes.dim);
    load_codes(codes, position, count, rows.data(), pool);
    return rows;
  }
};

// Multiplies each block of a row by the Hadamard matrix over sqrt(block), by its definition.
std::vector<double> turned(const float* row, const CacheCodes& codes) {
  std::vector<double> out(codes.dim);
  const size_t block = codes.block();
  for (size_t i = 0; i < codes.dim; ++i) {
    for (size_t j = 0; j < block; ++j) {
      const bool negative = std::popcount(i % block & j) % 2 != 0;
      const double x = row[i / block * block + j];
      out[i] += (negative ? -x : x) / std::sqrt(static_cast<double>(block));
    }
  }
  return out;
}

float half(const std::byte* at) {
  float value;
  load(DType::kF16, at, &value, 1);
  return value;
}

TEST(CacheCodes, LieAsTheHeaderSays) {
  ThreadPool pool(1);
  for (const int bits : {8, 4}) {
    Held held(3, 2, 96, bits);
    ASSERT_EQ(held.codes.block(), 32);
    ASSERT_EQ(held.codes.row_bytes(), 96 * bits / 8 + 3 * 2);
    // The turned values are whole numbers, the largest one of each group such that its scale is 1.
    std::vector<float> whole(96);
    for (size_t i = 0; i < 96; ++i) {
      whole[i] = bits == 8 ? static_cast<float>(int(i * 37 % 255) - 127)
                           : static_cast<float>(int(i * 7 % 16) - 8);
      if (i % 32 == 5) whole[i] = bits == 8 ? -127.0f : -8.0f;
    }
    std::vector<float> rows(2 * 96);
    const std::vector<double> stated = turned(whole.data(), held.codes);
    std::copy(stated.begin(), stated.end(), rows.begin() + 96);  // head 1
    held.store(2, rows, pool);
    const std::byte* const row = held.bytes.data() + (1 * 3 + 2) * held.codes.row_bytes();
    for (size_t i = 0; i < 96; ++i) {
      const size_t group = i / 32, at = i % 32;
      int code = 0;
      if (bits == 8) {
        code = static_cast<int8_t>(row[i]);
      } else {
        const auto both = static_cast<int>(row[group * 16 + at % 16]);
        code = (at < 16 ? both & 15 : both >> 4) - 8;
      }
      EXPECT_EQ(code, static_cast<int>(whole[i])) << bits << " bits, " << i;
      EXPECT_EQ(half(row + held.codes.code_bytes() + group * 2), 1.0f);
    }
    // Rows of zeros, as those of head 0 are, stay zeros.
    const std::vector<float> values = held.values(2, 1, pool);
    EXPECT_TRUE(std::all_of(values.begin(), values.begin() + 96, [](float v) { return v == 0; }));
  }
}

// No turned value is further from its code's than half of a step of its group. In 4 bits the
// largest magnitude of the other sign than the scale's may be a whole step away.
TEST(CacheCodes, AreTheNearestOnes) {
  ThreadPool pool(1);
  for (const size_t dim : {4, 8, 12, 16, 24, 40, 64, 80, 96, 128, 576}) {
    for (const int bits : {8, 4}) {
      Held held(5, 3, dim, bits);
      auto rows = random_values(4 * 3 * dim, 7 + static_cast<uint32_t>(dim));
      for (size_t i = 0; i < dim; ++i) rows[i] *= i % 7 == 0 ? 100.0f : 1.0f;
      held.store(1, rows, pool);
      const std::vector<float> values = held.values(1, 4, pool);
      for (size_t r = 0; r < 12; ++r) {
        const std::vector<double> want = turned(&rows[r * dim], held.codes);
        const std::vector<double> got = turned(&values[r * dim], held.codes);
        const std::byte* const scales = held.codes.row(r % 3, 1 + r / 3) + held.codes.code_bytes();
        for (size_t i = 0; i < dim; ++i) {
          const double scale = half(scales + i / held.codes.group() * 2);
          const bool clamped = bits == 4 && want[i] / scale > 7;
          const double bound = (clamped ? 1.01 : 0.501) * std::abs(scale) + 1e-5;
          ASSERT_NEAR(got[i], want[i], bound) << dim << ", " << bits << " bits";
        }
      }
    }
  }
}

TEST(CacheCodes, AreEqualOnEveryTargetAndWithAnyPool) {
  for (const size_t dim : {4, 24, 64, 80, 256}) {
    for (const int bits : {8, 4}) {
      const auto rows = random_values(40 * 2 * dim, 3);
      const auto stored = [&](ThreadPool& pool) {
        Held held(40, 2, dim, bits);
        held.store(0, rows, pool);
        const std::vector<float> values = held.values(0, 40, pool);
        const auto bytes = std::as_bytes(std::span(values));
        held.bytes.insert(held.bytes.end(), bytes.begin(), bytes.end());
        return held.bytes;
      };
      expect_same_with_any_pool(stored);
      ThreadPool pool(1);
      const std::vector<std::byte> expected = stored(pool);
      on_every_target([&] { ASSERT_EQ(stored(pool), expected); });
    }
  }
}

TEST(CacheCodes, OfHalfPrecisionAreThoseOfTheValues) {
  ThreadPool pool(1);
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    auto rows = random_values(2 * 64, 9);
    std::vector<std::byte> halves(rows.size() * 2);
    store(dtype, rows.data(), halves.data(), std::ssize(rows));
    load(dtype, halves.data(), rows.data(), std::ssize(rows));
    Held wide(2, 1, 64, 4), narrow(2, 1, 64, 4);
    wide.store(0, rows, pool);
    store_codes(narrow.codes, 0, dtype, halves.data(), 2, pool);
    EXPECT_EQ(wide.bytes, narrow.bytes);
  }
}

// A value that is not finite, or beyond f16, is never read as a number.
TEST(CacheCodes, KeepNoNumberForWhatIsNotFinite) {
  ThreadPool pool(1);
  for (const int bits : {8, 4}) {
    for (const float bad : {kNan, kInf, -kInf, 3e38f, 1e9f}) {
      on_every_target([&] {
        Held held(2, 1, 64, bits);
        auto rows = random_values(2 * 64, 5);
        rows[3] = bad;
        held.store(0, rows, pool);
        const std::vector<float> values = held.values(0, 2, pool);
        EXPECT_TRUE(std::all_of(&values[0], &values[64], [](float v) { return std::isnan(v); }));
        EXPECT_TRUE(
            std::all_of(&values[64], &values[128], [](float v) { return std::isfinite(v); }));
      });
    }
    // Numbers below f16 become 0.
    Held held(1, 1, 64, bits);
    held.store(0, random_values(64, 5, 1e-9f), pool);
    for (const float v : held.values(0, 1, pool)) EXPECT_EQ(v, 0.0f);
  }
}

// Attention to codes is attention to the numbers that they stand for.
TEST(CacheCodes, AttentionReadsThem) {
  struct Case {
    int64_t t, heads, kv_heads, dim, context, start;
  };
  ThreadPool pool(2);
  for (const Case& c : {Case{1, 9, 3, 64, 300, 299},
                        {1, 2, 1, 4, 5, 2},
                        {7, 4, 2, 24, 130, 100},
                        {40, 4, 4, 80, 256, 150},
                        {3, 1, 1, 576, 100, 97}}) {
    for (const int bits : {8, 4}) {
      const auto n = static_cast<size_t>(c.context * c.kv_heads * c.dim);
      Held key(c.context, c.kv_heads, c.dim, bits), value(c.context, c.kv_heads, c.dim, bits);
      key.store(0, random_values(n, 11), pool);
      value.store(0, random_values(n, 12), pool);
      const auto keys = key.values(0, c.context, pool), values = value.values(0, c.context, pool);
      const SdpaShape shape{1, c.t, c.heads, c.kv_heads, c.dim, c.context};
      const auto rows = static_cast<size_t>(c.t * c.heads), dim = static_cast<size_t>(c.dim);
      const auto query = random_values(rows * dim, 13, 4.0f);
      const float scale = 1.0f / std::sqrt(static_cast<float>(c.dim));
      on_every_target([&] {
        std::vector<float> expected(rows * dim), out(rows * dim);
        sdpa_f32(shape, query.data(), {DType::kF32, keys.data()}, {DType::kF32, values.data()},
                 nullptr, true, c.start, scale, expected.data(), pool);
        auto queries = query;
        turn_rows(dim, rows, queries.data(), pool);
        const StoredRows coded_keys{.dtype = DType::kU8, .at = key.codes.at, .codes = &key.codes};
        const StoredRows coded_values{
            .dtype = DType::kU8, .at = value.codes.at, .codes = &value.codes};
        sdpa_f32(shape, queries.data(), coded_keys, coded_values, nullptr, true, c.start, scale,
                 out.data(), pool);
        turn_rows(dim, rows, out.data(), pool);
        for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], expected[i], 4e-6) << c.dim;
      });
    }
  }
}

}  // namespace
}  // namespace ferry::kernels::cache_codes_test
