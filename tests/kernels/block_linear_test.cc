// Products with blocks of GGUF files against sums in f64 of the values that dialects/gguf decodes,
// with activations that are rounded here.
#include "kernels/block_linear.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "dialects/gguf/file/dequant.h"
#include "kernels/block_product.h"
#include "tests/kernels/block_evex.h"
#include "tests/kernels/compute_testing.h"

namespace ferry::kernels::block_linear_test {
namespace {

// The types of GGUF files by name, and the places of the numbers in f16 in their blocks.
struct Type {
  const char* name;
  uint32_t id;
  std::vector<size_t> halves;
};
const std::vector<Type>& types() {
  static const std::vector<Type> all = {
      {"q4_0", 2, {0}},     {"q4_1", 3, {0, 2}},    {"q5_0", 6, {0}},    {"q5_1", 7, {0, 2}},
      {"q8_0", 8, {0}},     {"q2_k", 10, {80, 82}}, {"q3_k", 11, {108}}, {"q4_k", 12, {0, 2}},
      {"q5_k", 13, {0, 2}}, {"q6_k", 14, {208}},    {"iq4_nl", 20, {0}}, {"iq4_xs", 23, {0}},
      {"mxfp4", 39, {}}};
  return all;
}

// Whether blocks begin with the exponent of their scale.
bool is_exponent(const Type& type) { return type.halves.empty(); }

// Random blocks whose scales are between 2^-7 and 2^-6, of both signs.
struct TestBlocks {
  BlockMatrix matrix;
  std::vector<std::byte> bytes;
  std::vector<float> values;

  TestBlocks(const Type& type, int64_t rows, int64_t columns) {
    std::mt19937 random(type.id);
    matrix = {find_block_layout(type.name), rows, columns, nullptr};
    bytes.resize(static_cast<size_t>(rows * matrix.row_bytes()));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
    const auto block = static_cast<size_t>(matrix.layout->bytes);
    const BlockEncoding& encoding = *formats::find_gguf_type(type.id)->encoding();
    values.resize(static_cast<size_t>(rows * columns));
    float* value = values.data();
    for (size_t at = 0; at < bytes.size(); at += block, value += encoding.elements) {
      for (const size_t half : type.halves) {
        const auto bits = static_cast<uint16_t>(0x2000 + random() % 0x400 + random() % 2 * 0x8000);
        std::memcpy(bytes.data() + at + half, &bits, sizeof bits);
      }
      if (is_exponent(type)) bytes[at] = static_cast<std::byte>(118 + random() % 4);
      encoding.decode(bytes.data() + at, value);
    }
    matrix.blocks = bytes.data();
  }
};

// Rounds a row as products do.
std::vector<double> rounded(const float* x, int64_t columns) {
  std::vector<double> out;
  for (int64_t g = 0; g < columns; g += 32) {
    float most = 0;
    for (int64_t i = g; i < g + 32; ++i) most = std::max(most, std::abs(x[i]));
    for (int64_t i = g; i < g + 32; ++i) {
      out.push_back(most == 0 ? 0 : std::nearbyint(x[i] * (127.0F / most)) * (most / 127.0F));
    }
  }
  return out;
}

// Which code product() takes: that of every processor, or a set of instructions.
struct Code {
  bool chosen = false;
  const BlockSet* set = nullptr;
};
Code code;

// Calls body for each target of Highway and for each set of instructions of this processor.
template <class Body>
void on_every_code(const Body& body) {
  code = {true, nullptr};
  on_every_target(body);
  std::vector<const BlockSet*> sets(block_sets().begin(), block_sets().end());
#if defined(__x86_64__)
  if (processor().avx512_vnni) sets.push_back(&block_evex());
#endif
  for (const BlockSet* set : sets) {
    SCOPED_TRACE(set->name);
    code = {true, set};
    body();
  }
  code = {};
}

std::vector<float> product(const BlockMatrix& matrix, const std::vector<float>& x, size_t threads) {
  const int64_t m = std::ssize(x) / matrix.columns;
  std::vector<float> out(static_cast<size_t>(m * matrix.rows), kNan);
  ThreadPool pool(threads);
  const BlockTask task = {matrix, out.data()};
  if (code.chosen) {
    block_linear_with(code.set, x.data(), m, {&task, 1}, pool);
  } else {
    block_linear(x.data(), m, {&task, 1}, pool);
  }
  return out;
}

TEST(BlockLinear, LayoutsAreThoseOfTheFiles) {
  for (const Type& type : types()) {
    const BlockLayout* layout = find_block_layout(type.name);
    ASSERT_NE(layout, nullptr) << type.name;
    const BlockEncoding& encoding = *formats::find_gguf_type(type.id)->encoding();
    EXPECT_EQ(layout->name, encoding.name);
    EXPECT_EQ(layout->elements, encoding.elements) << type.name;
    EXPECT_EQ(layout->bytes, encoding.bytes) << type.name;
  }
  EXPECT_EQ(find_block_layout("iq2_xs"), nullptr);
  EXPECT_EQ(find_block_layout(""), nullptr);
}

TEST(BlockLinear, RowsHaveTheValuesOfTheBlocks) {
  for (const Type& type : types()) {
    SCOPED_TRACE(type.name);
    const TestBlocks blocks(type, 3, 768);
    on_every_target([&] {
      std::vector<float> row(768);
      for (int64_t n = 0; n < 3; ++n) {
        block_row(blocks.matrix, n, row.data());
        for (size_t i = 0; i < row.size(); ++i) {
          ASSERT_EQ(row[i], blocks.values[static_cast<size_t>(n) * 768 + i]) << n << " " << i;
        }
      }
    });
  }
}

// The numbers of rows take every path: one row, several, and tiles.
TEST(BlockLinear, MultipliesRoundedActivations) {
  for (const Type& type : types()) {
    SCOPED_TRACE(type.name);
    const bool small = find_block_layout(type.name)->elements == 32;
    for (const int64_t columns : small ? std::vector<int64_t>{32, 64, 96, 160, 192, 224, 576, 1056}
                                       : std::vector<int64_t>{256, 1024}) {
      SCOPED_TRACE(columns);
      const int64_t rows = 37, m = 21;
      const TestBlocks blocks(type, rows, columns);
      const std::vector<float> x = random_values(static_cast<size_t>(m * columns), 3, 2.0F);
      std::vector<float> expected_bits;
      on_every_code([&] {
        const std::vector<float> out = product(blocks.matrix, x, 2);
        for (int64_t i = 0; i < m; ++i) {
          const std::vector<double> act = rounded(x.data() + i * columns, columns);
          for (int64_t n = 0; n < rows; ++n) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < columns; ++k) {
              const double term =
                  act[static_cast<size_t>(k)] * blocks.values[static_cast<size_t>(n * columns + k)];
              sum += term;
              size += std::abs(term);
            }
            ASSERT_NEAR(out[static_cast<size_t>(i * rows + n)], sum, 1e-6 * size) << i << " " << n;
          }
        }
        // All instruction sets give the same bits.
        if (expected_bits.empty()) expected_bits = out;
        EXPECT_EQ(std::memcmp(out.data(), expected_bits.data(), out.size() * sizeof(float)), 0);
      });
      // So do rows alone, several rows, and another number of threads.
      for (const int64_t alone : {1, 3, 4, 5}) {
        const std::vector<float> part(x.begin(), x.begin() + alone * columns);
        const std::vector<float> out = product(blocks.matrix, part, 3);
        EXPECT_EQ(std::memcmp(out.data(), expected_bits.data(), out.size() * sizeof(float)), 0)
            << alone;
      }
    }
  }
}

// Processors with AVX-512 but without products of bytes take the code for AVX2.
TEST(BlockLinear, ProcessorsWithMoreInstructionsTakeTheNearestCode) {
  if ((hwy::SupportedTargets() & HWY_AVX2) == 0) return;
  const TestBlocks blocks(types()[7], 5, 256);
  const std::vector<float> x = random_values(20 * 256);
  const std::vector<float> expected = product(blocks.matrix, x, 1);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets() | HWY_AVX3);
  code = {true, nullptr};
  const std::vector<float> out = product(blocks.matrix, x, 1);
  code = {};
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  EXPECT_EQ(out, expected);
}

TEST(BlockLinear, SeveralMatricesAreMultipliedAtOnce) {
  const int64_t columns = 256;
  const TestBlocks a(types()[7], 40, columns), b(types()[4], 3, columns),
      c(types()[9], 17, columns);
  for (const int64_t m : {int64_t{1}, int64_t{18}}) {
    const std::vector<float> x = random_values(static_cast<size_t>(m * columns));
    std::vector<std::vector<float>> outs;
    std::vector<BlockTask> tasks;
    for (const TestBlocks* blocks : {&a, &b, &c}) {
      outs.emplace_back(static_cast<size_t>(m * blocks->matrix.rows), kNan);
      tasks.push_back({blocks->matrix, outs.back().data()});
    }
    ThreadPool pool(2);
    block_linear(x.data(), m, tasks, pool);
    size_t i = 0;
    for (const TestBlocks* blocks : {&a, &b, &c}) {
      EXPECT_EQ(outs[i++], product(blocks->matrix, x, 1)) << m;
    }
  }
}

// A group that is not finite makes the row NaN. Groups of zeros and of tiny numbers count as zeros.
TEST(BlockLinear, ActivationsMayBeExtreme) {
  const TestBlocks blocks(types()[0], 2, 96);
  for (const float special :
       {kNan, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    on_every_code([&] {
      std::vector<float> x(2 * 96, 0.0F);
      x[40] = special;
      x[100] = 1e-39F;
      const std::vector<float> out = product(blocks.matrix, x, 1);
      EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[1]));
      EXPECT_EQ(out[2], 0);
      EXPECT_EQ(out[3], 0);
    });
  }
}

// Code -128 of Q8_0, the greatest of unsigned types, and activations of the greatest codes fit the
// sums of 16 bits.
TEST(BlockLinear, SumsOfExtremeCodesAreExact) {
  for (const Type& type : types()) {
    SCOPED_TRACE(type.name);
    for (const auto fill : {std::byte{0xff}, std::byte{0x80}, std::byte{0x00}}) {
      TestBlocks blocks(type, 2, 256);
      const auto block = static_cast<size_t>(blocks.matrix.layout->bytes);
      const BlockEncoding& encoding = *formats::find_gguf_type(type.id)->encoding();
      std::ranges::fill(blocks.bytes, fill);
      float* value = blocks.values.data();
      for (size_t at = 0; at < blocks.bytes.size(); at += block, value += encoding.elements) {
        for (const size_t half : type.halves) {
          const uint16_t one = 0x3c00;
          std::memcpy(blocks.bytes.data() + at + half, &one, sizeof one);
        }
        if (is_exponent(type)) blocks.bytes[at] = std::byte{128};
        encoding.decode(blocks.bytes.data() + at, value);
      }
      for (const float sign : {1.0F, -1.0F}) {
        on_every_code([&] {
          for (const size_t m : {size_t{1}, size_t{17}}) {
            const std::vector<float> x(m * 256, sign * 127.0F);
            double sum = 0, size = 0;
            for (size_t k = 0; k < 256; ++k) {
              sum += static_cast<double>(x[k]) * blocks.values[k];
              size += std::abs(static_cast<double>(x[k]) * blocks.values[k]);
            }
            EXPECT_NEAR(product(blocks.matrix, x, 1)[0], sum, 1e-6 * size) << m;
          }
        });
      }
    }
  }
}

}  // namespace
}  // namespace ferry::kernels::block_linear_test
