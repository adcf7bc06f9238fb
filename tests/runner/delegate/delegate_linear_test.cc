// FullyConnected nodes of delegates, with matrices of every type and with rows in f32 or quantised.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "core/dtype.h"
#include "kernels/quantized_kernels.h"
#include "kernels/quantized_linear.h"
#include "tests/runner/delegate/graph_runner.h"

namespace ferry::runner::delegate_linear_test {
namespace {

using xnnpack::Datatype;
using xnnpack::NodeKind;

constexpr float kInf = std::numeric_limits<float>::infinity();

// Weights of a FullyConnected as they are stored, and as numbers.
struct Weights {
  Datatype datatype;
  int64_t rows, columns;
  uint32_t group = 0;
};

class Linears : public testing::TestWithParam<Weights> {
 protected:
  std::mt19937 random_{1};
  float number(float largest) {
    return std::uniform_real_distribution<float>(-largest, largest)(random_);
  }
  Floats numbers(size_t count, float largest) {
    Floats values(count);
    for (float& value : values) value = number(largest);
    return values;
  }

  // Returns the value of a matrix with random codes. Appends its numbers to `numbers`.
  uint32_t filter(GraphRunner& runner, Floats& numbers) {
    const Weights& w = GetParam();
    const int64_t group = w.group == 0 ? w.columns : w.group;
    std::vector<std::byte> codes, scales;
    Floats scale;
    for (int64_t i = 0; i < w.rows * w.columns / group; ++i) {
      scale.push_back(bf16_to_f32(f32_to_bf16(0.01F + std::abs(number(0.02F)))));
      append(scales, scale.back(), w.group > 0);
    }
    const bool four = w.datatype != Datatype::kQCInt8;
    for (int64_t i = 0; i < w.rows * w.columns; ++i) {
      const int code =
          std::uniform_int_distribution<int>(four ? -8 : -128, four ? 7 : 127)(random_);
      numbers.push_back(static_cast<float>(code) * scale[static_cast<size_t>(i / group)]);
      if (!four) {
        codes.push_back(static_cast<std::byte>(code));
      } else if (i % 2 == 0) {
        codes.push_back(static_cast<std::byte>(code + 8));
      } else {
        codes.back() |= static_cast<std::byte>((code + 8) << 4);
      }
    }
    return runner.coded({w.rows, w.columns}, w.datatype, w.group, codes, scales);
  }

  static void append(std::vector<std::byte>& bytes, float scale, bool bf16) {
    const uint16_t half = f32_to_bf16(scale);
    const auto* from = bf16 ? reinterpret_cast<const std::byte*>(&half)
                            : reinterpret_cast<const std::byte*>(&scale);
    bytes.insert(bytes.end(), from, from + (bf16 ? 2 : 4));
  }
};

// Computes the product in double, from rounded activations if they are quantised.
Floats product(const Floats& x, const Floats& w, int64_t columns, bool quantised) {
  const size_t k = static_cast<size_t>(columns);
  Floats out;
  for (size_t row = 0; row < x.size(); row += k) {
    Floats values(x.begin() + static_cast<ptrdiff_t>(row),
                  x.begin() + static_cast<ptrdiff_t>(row + k));
    if (quantised) {
      std::vector<int8_t> codes(k);
      const kernels::QuantizedRow q = kernels::quantize_row(values, codes);
      for (size_t i = 0; i < k; ++i) {
        values[i] = static_cast<float>(codes[i] - q.zero_point) * q.inverse_scale;
      }
    }
    for (size_t n = 0; n < w.size(); n += k) {
      double sum = 0;
      for (size_t i = 0; i < k; ++i) sum += static_cast<double>(values[i]) * w[n + i];
      out.push_back(static_cast<float>(sum));
    }
  }
  return out;
}

TEST_P(Linears, OfQuantisedRowsWithOneConvertOrSeveral) {
  for (const bool literal : {false, true}) {
    for (const bool shared : {false, true}) {
      GraphRunner runner;
      runner.literal = literal;
      const Weights& w = GetParam();
      Floats first, second;
      const Floats x = numbers(static_cast<size_t>(3 * w.columns), 2);
      const uint32_t input = runner.input({{1, 3, w.columns}, x});
      const uint32_t a = filter(runner, first), b = filter(runner, second);
      const Floats bias = numbers(static_cast<size_t>(w.rows), 1);
      const uint32_t bias_id = runner.constant({{w.rows}, bias});
      const uint32_t q1 = runner.quantised({1, 3, w.columns});
      const uint32_t q2 = shared ? q1 : runner.quantised({1, 3, w.columns});
      runner.add(NodeKind::kConvert, {input}, q1);
      if (!shared) runner.add(NodeKind::kConvert, {input}, q2);
      runner.add(NodeKind::kFullyConnected, {q1, a, xnnpack::kNone}, runner.output({1, 3, w.rows}));
      runner.add(NodeKind::kFullyConnected, {q2, b, bias_id}, runner.output({1, 3, w.rows}))
          .output_range = xnnpack::MinMax{0, kInf};
      const auto outputs = runner.run();
      ASSERT_TRUE(outputs) << outputs.error().message;
      expect_near(outputs->at(0).values, product(x, first, w.columns, true), 1e-5F);
      Floats want = product(x, second, w.columns, true);
      for (size_t i = 0; i < want.size(); ++i) {
        want[i] = std::max(0.0F, want[i] + bias[i % bias.size()]);
      }
      expect_near(outputs->at(1).values, want, 1e-5F);
    }
  }
}

TEST_P(Linears, OfRowsThatStayInF32WhereTheyAreWidened) {
  for (const bool rounded : {false, true}) {
    const Weights& w = GetParam();
    GraphRunner runner;
    runner.widen = true;
    runner.round_rows = rounded;
    Floats weights;
    const Floats x = numbers(static_cast<size_t>(2 * w.columns), 2);
    const uint32_t input = runner.input({{2, w.columns}, x});
    const uint32_t matrix = filter(runner, weights);
    const uint32_t rows = runner.quantised({2, w.columns});
    runner.add(NodeKind::kConvert, {input}, rows);
    runner.add(NodeKind::kFullyConnected, {rows, matrix}, runner.output({2, w.rows}));
    const auto outputs = runner.run();
    ASSERT_TRUE(outputs) << outputs.error().message;
    expect_near(outputs->at(0).values, product(x, weights, w.columns, rounded), 1e-5F);
  }
}

// One product takes the rows in f32, the other takes them quantised.
TEST_P(Linears, OfRoundedAndOfPlainRows) {
  const Weights& w = GetParam();
  if (w.group > 0) GTEST_SKIP() << "no weight of 4 bits in groups takes rows in f32";
  GraphRunner runner;
  runner.widen = runner.round_rows = true;
  Floats first, second;
  const Floats x = numbers(static_cast<size_t>(2 * w.columns), 2);
  const uint32_t input = runner.input({{2, w.columns}, x});
  const uint32_t a = filter(runner, first), b = filter(runner, second);
  const uint32_t rows = runner.quantised({2, w.columns});
  runner.add(NodeKind::kFullyConnected, {input, a}, runner.output({2, w.rows}));
  runner.add(NodeKind::kConvert, {input}, rows);
  runner.add(NodeKind::kFullyConnected, {rows, b}, runner.output({2, w.rows}));
  const auto outputs = runner.run();
  ASSERT_TRUE(outputs) << outputs.error().message;
  expect_near(outputs->at(0).values, product(x, first, w.columns, false), 1e-5F);
  expect_near(outputs->at(1).values, product(x, second, w.columns, true), 1e-5F);
}

TEST_P(Linears, OfF32RowsUnlessScalesAreOfGroups) {
  const Weights& w = GetParam();
  GraphRunner runner;
  Floats weights;
  const Floats x = numbers(static_cast<size_t>(2 * w.columns), 2);
  const uint32_t input = runner.input({{2, w.columns}, x});
  const uint32_t matrix = filter(runner, weights);
  runner.add(NodeKind::kFullyConnected, {input, matrix, xnnpack::kNone},
             runner.output({2, w.rows}));
  const auto outputs = runner.run();
  if (w.group > 0) {
    ASSERT_FALSE(outputs);
    EXPECT_EQ(outputs.error().message,
              "node 0 (FullyConnected): a filter in qbint4 for an input in f32 is not supported");
    return;
  }
  ASSERT_TRUE(outputs) << outputs.error().message;
  expect_near(outputs->at(0).values, product(x, weights, w.columns, false), 1e-5F);
}

INSTANTIATE_TEST_SUITE_P(All, Linears,
                         testing::Values(Weights{Datatype::kQBInt4, 5, 64, 32},
                                         Weights{Datatype::kQCInt8, 7, 33},
                                         Weights{Datatype::kQCInt4, 3, 64}));

TEST(Delegate, LinearInF32WithABias) {
  GraphRunner runner;
  const uint32_t x = runner.input({{2, 2}, {1, 2, 3, 4}});
  const uint32_t w = runner.constant({{3, 2}, {1, 0, 0, 1, 1, 1}});
  const uint32_t bias = runner.constant({{3}, {0, 0, -5}});
  runner.add(NodeKind::kFullyConnected, {x, w, bias}, runner.output({2, 3})).output_range =
      xnnpack::MinMax{-1, 3.5};
  const auto outputs = runner.run();
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ(outputs->at(0).values, (Floats{1, 2, -1, 3, 3.5, 2}));
}

TEST(Delegate, MatricesWithTheSameBytesArePackedOnce) {
  GraphRunner runner;
  const std::vector<std::byte> codes(32 * 64), scales(32 * 4);
  const uint32_t x = runner.input({{1, 64}, Floats(64)});
  const uint32_t w = runner.coded({32, 64}, Datatype::kQCInt8, 0, codes, scales);
  const uint32_t q = runner.quantised({1, 64});
  runner.add(NodeKind::kConvert, {x}, q);
  for (int i = 0; i < 10; ++i) {
    runner.add(NodeKind::kFullyConnected, {q, w}, runner.output({1, 32}));
  }
  // The memory suffices for one packed matrix, and for the rows.
  kernels::CodedMatrix matrix{.rows = 32, .columns = 64};
  matrix.codes = codes.data();
  matrix.scales = scales.data();
  ThreadPool pool(1);
  const uint64_t one = kernels::PackedMatrix::pack(matrix).bytes();
  runner.memory_bytes = one + kernels::dynamic_linear_scratch(1, 64);
  const Status enough = runner.compile();
  EXPECT_TRUE(enough) << enough.error().message;
  runner.memory_bytes = one - 1;
  const Status status = runner.compile();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace ferry::runner::delegate_linear_test
