// Tables and matrices of codes, with a scale for each group or each row. Expected values are
// computed by hand from
//   x = (code - zero_point) * scale
#include <cmath>
#include <limits>
#include <random>

#include "tests/runner/op_cases.h"

namespace ferry::runner::coded_embedding_test {
namespace {

const std::string kPrefix = "quantized_decomposed::";
constexpr double kInf = std::numeric_limits<double>::infinity();

Values u8(Shape shape, std::vector<double> values) {
  return {DType::kU8, std::move(shape), std::move(values)};
}
Values i8(Shape shape, std::vector<double> values) {
  return {DType::kI8, std::move(shape), std::move(values)};
}
Values typed(DType dtype, Values values) {
  values.dtype = dtype;
  return values;
}

// -- embeddings

std::vector<Arg> lookup(const Values& weight, const Values& scales, const Values& indices,
                        const Arg& zero_points = NoValue()) {
  return {weight, scales, zero_points, integer(-8), integer(7), indices};
}
std::vector<Arg> with(std::vector<Arg> args, const Arg& more) {
  args.push_back(more);
  return args;
}

TEST(CodedEmbedding, ReadsRowsOfEveryWidth) {
  const Values indices = i64({2, 1}, {1, 0});
  check_cases({
      {kPrefix + "embedding_byte.out",
       lookup(i8({2, 2}, {-128, 127, 1, -1}), f32({2}, {1, 0.5}), indices),
       {f32({2, 1, 2}, {0.5, -0.5, -128, 127})},
       0},
      {kPrefix + "embedding_byte.out",
       lookup(u8({2, 2}, {0, 255, 1, 2}), f32({2}, {1, 0.5}), indices),
       {f32({2, 1, 2}, {0.5, 1, 0, 255})},
       0},
      // The high bits of a byte come first.
      {kPrefix + "embedding_4bit.out",
       lookup(u8({2, 2}, {0x0f, 0x87, 0x98, 0x79}), f32({2}, {1, 0.5}), indices),
       {f32({2, 1, 4}, {0.5, 0, -0.5, 0.5, -8, 7, 0, -1})},
       0},
      // The low bits of a byte come first.
      {kPrefix + "embedding_2bit.out",
       lookup(u8({2, 1}, {0xe4, 0x1b}), f32({2}, {1, 0.5}), indices),
       {f32({2, 1, 4}, {0.5, 0, -0.5, -1, -2, -1, 0, 1})},
       0},
  });
}

TEST(CodedEmbedding, HasScalesAndZeroPointsOfGroups) {
  const Values weight = i8({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
  const Values scales = f32({2, 2}, {1, 10, 100, -1000});
  check_cases({
      {kPrefix + "embedding_byte.out",
       lookup(weight, scales, i64({1}, {1})),
       {f32({1, 4}, {500, 600, -7000, -8000})},
       0},
      {kPrefix + "embedding_byte.out",
       lookup(weight, scales, i64({1}, {1}), f32({2, 2}, {0, 0, 4, 8})),
       {f32({1, 4}, {100, 200, 1000, 0})},
       0},
      {kPrefix + "embedding_4bit.out",
       lookup(u8({1, 2}, {0x12, 0xab}), f32({1, 2}, {1, 10}), i64({}, {0})),
       {f32({4}, {-7, -6, 20, 30})},
       0},
  });
}

TEST(CodedEmbedding, GivesTheDtypeThatIsAskedFor) {
  const Values weight = u8({1, 2}, {0x12, 0xab});
  for (const DType scales : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const DType out : {DType::kF32, DType::kF16, DType::kBF16}) {
      const Arg dtype = integer(dtype_info(out).executorch);
      check_cases({{kPrefix + "embedding_4bit.dtype_out",
                    with(lookup(weight, typed(scales, f32({1}, {0.5})), i64({1}, {0})), dtype),
                    {typed(out, f32({1, 4}, {-3.5, -3, 1, 1.5}))},
                    0}});
    }
  }
}

// torchao packs w[i] = ((37 i mod 32) - 15.5) / 32 * (1 + (i mod 5) / 8) into these bytes, with HQQ
// and one group of 32.
TEST(CodedEmbedding, ReadsTheBytesOfTorchao) {
  const std::vector<double> bytes = {0x34, 0x68, 0xab, 0xd3, 0x57, 0x9b, 0xd2, 0x37,
                                     0x8a, 0xdf, 0x46, 0x7a, 0xcc, 0x35, 0x69, 0xac};
  const auto rows =
      run_op(kPrefix + "embedding_4bit.out",
             lookup(u8({1, 16}, bytes), f32({1}, {0.0982914}), i64({1}, {0})), {f32({1, 32}, {})});
  ASSERT_TRUE(rows) << rows.error().message;
  for (int i = 0; i < 32; ++i) {
    const double w = ((37 * i % 32) - 15.5) / 32 * (1 + i % 5 / 8.0);
    EXPECT_NEAR(rows->at(0).values[static_cast<size_t>(i)], w, 0.0982914 / 2 + 1e-6) << i;
  }
}

TEST(CodedEmbedding, RefusesWhatItCannotRead) {
  const auto error = [](const std::vector<Arg>& args, const std::string& name = "embedding_4bit") {
    return op_error(kPrefix + name + ".out", args, {f32({1, 4}, {})});
  };
  const Values weight = u8({3, 2}, {0, 0, 0, 0, 0, 0});
  const Values scales = f32({3}, {1, 1, 1}), indices = i64({1}, {0});
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(error(lookup(weight, scales, i64({1}, {3}))),
         "index 3 in value 5 is outside of a table of 3 rows");
  expect(error(lookup(weight, scales, i64({1}, {-1}))), "index -1");
  expect(error(lookup(i8({3, 2}, {0, 0, 0, 0, 0, 0}), scales, indices)), "must be u8");
  expect(error(lookup(weight, f32({2}, {1, 1}), indices)), "does not fit");
  expect(error(lookup(weight, f32({3, 3}, std::vector<double>(9, 1)), indices)), "does not fit");
  expect(error(lookup(weight, typed(DType::kF16, scales), indices)), "differ in dtype");
  expect(error(lookup(weight, scales, f32({1}, {0}))), "must be i64 or i32");
  expect(error(lookup(weight, scales, indices, i8({3}, {0, 0, 0}))), "differ in dtype");
  expect(error(lookup(weight, scales, indices, f32({1}, {0}))), "must have shape [3]");
}

// -- mixed products

TEST(MixedProducts, ScaleGroupsOfARowOfTheWeight) {
  const Values weight = i8({2, 4}, {1, 2, 3, 4, -1, -2, -3, 127});
  const Values input = f32({2, 4}, {1, 1, 1, 1, 1, 2, 3, 4});
  const auto args = [&](const Values& scales) {
    return std::vector<Arg>{input, weight, scales, NoValue(), NoValue()};
  };
  check_cases({
      {kPrefix + "mixed_linear.out",
       args(f32({2}, {1, 0.5})),
       {f32({2, 2}, {10, 60.5, 30, 247})},
       1e-6},
      {kPrefix + "mixed_linear.out",
       args(f32({2, 2}, {1, 10, 0.5, 1})),
       {f32({2, 2}, {73, 122.5, 255, 496.5})},
       1e-6},
      // The third group of two columns is empty.
      {kPrefix + "mixed_linear.out",
       args(f32({2, 3}, {1, 10, 7, 0.5, 1, 7})),
       {f32({2, 2}, {73, 122.5, 255, 496.5})},
       1e-6},
  });
}

TEST(MixedProducts, OfHalfAndIntoTheDtypeThatIsAskedFor) {
  const Values weight = i8({2, 2}, {1, 2, 3, -4});
  const Arg half = integer(dtype_info(DType::kF16).executorch);
  const Values input = typed(DType::kF16, f32({1, 2}, {1, 0.5}));
  const Values scales = typed(DType::kF16, f32({2}, {1, 0.25}));
  check_cases({{kPrefix + "mixed_linear.out",
                {input, weight, scales, NoValue(), half},
                {typed(DType::kF16, f32({1, 2}, {2, 0.25}))},
                0},
               {kPrefix + "mixed_mm.out",
                {input, weight, scales, NoValue()},
                {typed(DType::kF16, f32({1, 2}, {1.375, 1.5}))},
                0}});
}

TEST(MixedProducts, OfManyColumns) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> code(-128, 127);
  const int64_t m = 3, n = 700, k = 100;
  std::vector<double> weight, input, scales(n), linear, mm;
  for (int64_t i = 0; i < n * k; ++i) weight.push_back(code(random));
  for (int64_t i = 0; i < m * k; ++i) input.push_back(code(random) / 128.0);
  for (int64_t i = 0; i < n; ++i)
    scales[static_cast<size_t>(i)] = 1.0 / static_cast<double>(1 + i % 4);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double a = 0, b = 0;
      for (int64_t p = 0; p < k; ++p) {
        const double x = input[static_cast<size_t>(i * k + p)];
        a += x * weight[static_cast<size_t>(j * k + p)] * scales[static_cast<size_t>(j)];
        b += x * weight[static_cast<size_t>(p * n + j)] * scales[static_cast<size_t>(p)];
      }
      linear.push_back(a);
      mm.push_back(b);
    }
  }
  const std::vector<double> few(scales.begin(), scales.begin() + k);
  check_cases({{kPrefix + "mixed_linear.out",
                {f32({m, k}, input), i8({n, k}, weight), f32({n}, scales), NoValue(), NoValue()},
                {f32({m, n}, linear)},
                1e-4},
               {kPrefix + "mixed_mm.out",
                {f32({m, k}, input), i8({k, n}, weight), f32({k}, few), NoValue()},
                {f32({m, n}, mm)},
                1e-4}});
}

TEST(MixedProducts, RefuseWhatDoesNotFit) {
  const auto error = [](const Values& weight, const Values& scales, const Arg& zero_points) {
    return op_error(kPrefix + "mixed_linear.out",
                    {f32({1, 2}, {1, 1}), weight, scales, zero_points, NoValue()},
                    {f32({1, 2}, {})});
  };
  const Values weight = i8({2, 2}, {1, 1, 1, 1}), scales = f32({2}, {1, 1});
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(error(i8({2, 3}, {1, 1, 1, 1, 1, 1}), scales, NoValue()), "shape mismatch");
  expect(error(weight, f32({3}, {1, 1, 1}), NoValue()), "does not fit");
  expect(error(weight, scales, f32({2}, {0, 0})), "zero points of a mixed product");
  expect(error(typed(DType::kU8, weight), scales, NoValue()), "must be i8");
}

// -- a scale for each row

Values f64(Shape shape, std::vector<double> values) {
  return {DType::kF64, std::move(shape), std::move(values)};
}

const Arg kI8 = integer(1), kF32 = integer(6);

TEST(QuantizeRows, ChoosesScalesThatHoldEveryValue) {
  const auto chosen = [](std::vector<double> row) {
    const int64_t n = static_cast<int64_t>(row.size());
    const auto out = run_op(kPrefix + "choose_qparams_per_token_asymmetric.out",
                            {f32({1, n}, std::move(row)), kI8}, {f64({1, 1}, {}), i64({1, 1}, {})});
    EXPECT_TRUE(out) << out.error().message;
    return std::pair(out->at(0).values[0], out->at(1).values[0]);
  };
  using Chosen = std::pair<double, double>;
  EXPECT_EQ(chosen({0, 255, 3}), Chosen(1, -128));
  EXPECT_EQ(chosen({-255, -3}), Chosen(1, 127));
  EXPECT_EQ(chosen({-127.5, 127.5}), Chosen(1, 0));  // -0.5 rounds to even
  EXPECT_EQ(chosen({-51, 204}), Chosen(1, -77));
  EXPECT_EQ(chosen({0, 0}), Chosen(0.1, 127));
  EXPECT_EQ(chosen({0, 1e-9}), Chosen(6.1e-5F, -128));
  EXPECT_EQ(chosen({-1e-9}), Chosen(6.1e-5F, 127));
}

TEST(QuantizeRows, RowsHaveScalesOfTheirOwn) {
  const Values scales = f64({2, 1}, {1, 0.5}), zeros = i64({2, 1}, {0, -3});
  const Values codes = i8({2, 3}, {0, 2, 127, -4, 127, -128});
  check_cases({{kPrefix + "quantize_per_token.out",
                {f32({2, 3}, {0.5, 1.5, 1000, -0.5, 65, -1000}), scales, zeros, integer(-128),
                 integer(127), kI8},
                {codes},
                0},
               {kPrefix + "dequantize_per_token.out",
                {codes, scales, zeros, integer(-128), integer(127), kI8, kF32},
                {f32({2, 3}, {0, 2, 127, -0.5, 65, -62.5})},
                0},
               {kPrefix + "dequantize_per_token.out",
                {codes, typed(DType::kF32, scales), zeros, integer(-128), integer(127), kI8, kF32},
                {f32({2, 3}, {0, 2, 127, -0.5, 65, -62.5})},
                0},
               // Nothing was written into the first row of this cache.
               {kPrefix + "dequantize_per_token.out",
                {codes, f64({2, 1}, {0, 0.5}), zeros, integer(-128), integer(127), kI8, kF32},
                {f32({2, 3}, {0, 0, 0, -0.5, 65, -62.5})},
                0}});
}

TEST(QuantizeRows, RefusesWhatDoesNotFit) {
  const auto error = [](const Values& scales, const Values& zeros) {
    return op_error(kPrefix + "quantize_per_token.out",
                    {f32({2, 1}, {1, 1}), scales, zeros, integer(-128), integer(127), kI8},
                    {i8({2, 1}, {})});
  };
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(error(f64({1}, {1}), i64({2}, {0, 0})), "for 2 rows");
  expect(error(f64({2}, {1, 0}), i64({2}, {0, 0})), "a scale of 0");
  expect(error(f64({2}, {1, kInf}), i64({2}, {0, 0})), "a scale of inf");
  expect(error(f64({2}, {1, 1}), i64({2}, {0, 128})), "a zero point of 128");
  expect(error(f64({2}, {1, 1}), typed(DType::kI32, i64({2}, {0, 0}))), "must be i64");
}

}  // namespace
}  // namespace ferry::runner::coded_embedding_test
