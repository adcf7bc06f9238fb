// Elementwise operators, compared with values worked out by hand or by the C library in double.
#include <limits>
#include <random>

#include "tests/runner/op_cases.h"

namespace ferry::runner::elementwise_test {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

Values bf16(Shape shape, std::vector<double> values) {
  return {DType::kBF16, std::move(shape), std::move(values)};
}
Values f16(Shape shape, std::vector<double> values) {
  return {DType::kF16, std::move(shape), std::move(values)};
}
Values f64(Shape shape, std::vector<double> values) {
  return {DType::kF64, std::move(shape), std::move(values)};
}
Values i32(Shape shape, std::vector<double> values) {
  return {DType::kI32, std::move(shape), std::move(values)};
}

TEST(Elementwise, BinaryOperatorsBroadcast) {
  check_cases({
      {"aten::add.out",
       {f32({2, 3}, {1, 2, 3, 4, 5, 6}), f32({3}, {10, 20, 30}), integer(1)},
       {f32({2, 3}, {11, 22, 33, 14, 25, 36})}},
      {"aten::mul.out",
       {f32({2, 1}, {2, 3}), f32({1, 3}, {1, 10, 100})},
       {f32({2, 3}, {2, 20, 200, 3, 30, 300})}},
      {"aten::sub.out", {f32({2}, {1, 2}), f32({}, {5}), integer(2)}, {f32({2}, {-9, -8})}},
      {"aten::div.out", {f32({2}, {1, -1}), f32({2}, {4, 0})}, {f32({2}, {0.25, -kInf})}},
      {"aten::maximum.out",
       {f32({3}, {1, kNan, 3}), f32({3}, {2, 2, kNan})},
       {f32({3}, {2, kNan, kNan})}},
      {"aten::minimum.out", {i64({2}, {1, 5}), i64({2}, {2, -3})}, {i64({2}, {1, -3})}},
      {"aten::mul.out",
       {f32({2, 1, 2}, {1, 2, 3, 4}), f32({2, 1}, {10, 100})},
       {f32({2, 2, 2}, {10, 20, 100, 200, 30, 40, 300, 400})}},
  });
}

TEST(Elementwise, MixedDtypesPromoteAsInTorch) {
  check_cases({
      {"aten::add.out", {f32({2}, {0.5, 1}), i64({}, {2}), integer(1)}, {f32({2}, {2.5, 3})}},
      // bf16 has 8 bits of precision: 256 + 1 is computed in f32, and rounds to 256 when it is
      // stored.
      {"aten::add.out", {bf16({2}, {256, 4}), bf16({}, {1}), integer(1)}, {bf16({2}, {256, 5})}},
      {"aten::add.out", {bf16({2}, {256, 4}), f32({}, {1}), integer(1)}, {f32({2}, {257, 5})}},
      {"aten::mul.out", {f16({1}, {0.5}), bf16({1}, {3})}, {f32({1}, {1.5})}},
      {"aten::mul.Scalar_out", {i64({2}, {3, 4}), 0.5}, {f32({2}, {1.5, 2})}},
      {"aten::mul.Scalar_out", {f16({2}, {3, 4}), 0.5}, {f16({2}, {1.5, 2})}},
      {"aten::div.out", {i64({2}, {1, 3}), i64({}, {2})}, {f32({2}, {0.5, 1.5})}},
      {"aten::add.out", {boolean({2}, {1, 0}), i32({2}, {5, 6}), integer(1)}, {i32({2}, {6, 6})}},
      {"aten::add.Scalar_out",
       {f64({1}, {1e-12}), 1.0, integer(1)},
       {f64({1}, {1 + 1e-12})},
       1e-15},
  });
}

TEST(Elementwise, IntegersWrap) {
  check_cases({
      {"aten::add.out",
       {i32({1}, {2147483647}), i32({1}, {1}), integer(1)},
       {i32({1}, {-2147483648.0})}},
      {"aten::neg.out", {i32({1}, {-2147483648.0})}, {i32({1}, {-2147483648.0})}},
      {"aten::floor_divide.out",
       {i64({3}, {7, -7, 7}), i64({3}, {2, 2, -1})},
       {i64({3}, {3, -4, -7})}},
      {"aten::remainder.Scalar_out", {i64({3}, {7, -7, -8}), integer(4)}, {i64({3}, {3, 1, 0})}},
      {"aten::pow.Tensor_Scalar_out",
       {i64({3}, {2, -3, 10}), integer(3)},
       {i64({3}, {8, -27, 1000})}},
  });
}

TEST(Elementwise, ScalarVariantsAndAlpha) {
  check_cases({
      {"aten::add.Scalar_out", {f32({2}, {1, 2}), 0.5, integer(2)}, {f32({2}, {2, 3})}},
      {"aten::sub.Scalar_out", {f32({2}, {1, 2}), 0.5, integer(1)}, {f32({2}, {0.5, 1.5})}},
      {"aten::rsub.Scalar_out", {f32({2}, {1, 2}), 5.0, integer(1)}, {f32({2}, {4, 3})}},
      {"aten::rsub.Scalar_out", {f32({2}, {1, 2}), 5.0, integer(2)}, {f32({2}, {3, 1})}},
      {"aten::pow.Tensor_Scalar_out", {f32({2}, {3, -2}), integer(2)}, {f32({2}, {9, 4})}},
      {"aten::pow.Scalar_out", {2.0, f32({2}, {3, -1})}, {f32({2}, {8, 0.5})}},
      {"aten::pow.Tensor_Tensor_out", {f32({2}, {3, 4}), f32({2}, {3, 0.5})}, {f32({2}, {27, 2})}},
  });
}

TEST(Elementwise, ComparisonsAndLogic) {
  check_cases({
      {"aten::eq.Scalar_out", {f32({3}, {-kInf, 0, kNan}), -kInf}, {boolean({3}, {1, 0, 0})}},
      {"aten::gt.Scalar_out", {f32({3}, {19, 20, 21}), integer(20)}, {boolean({3}, {0, 0, 1})}},
      {"aten::ge.Scalar_out", {i64({3}, {1, 2, 3}), integer(2)}, {boolean({3}, {0, 1, 1})}},
      {"aten::lt.Scalar_out", {i64({3}, {1, 2, 3}), 2.5}, {boolean({3}, {1, 1, 0})}},
      {"aten::le.Tensor_out",
       {i64({2, 1}, {1, 3}), i64({2}, {1, 2})},
       {boolean({2, 2}, {1, 1, 0, 0})}},
      {"aten::ne.Scalar_out", {boolean({2}, {1, 0}), integer(1)}, {boolean({2}, {0, 1})}},
      {"aten::logical_and.out",
       {boolean({2, 1}, {1, 0}), boolean({2}, {1, 0})},
       {boolean({2, 2}, {1, 0, 0, 0})}},
      {"aten::logical_or.out", {f32({2}, {0, 0.5}), f32({2}, {0, 0})}, {boolean({2}, {0, 1})}},
      {"aten::logical_not.out", {boolean({2}, {1, 0})}, {boolean({2}, {0, 1})}},
      {"aten::bitwise_not.out", {boolean({2}, {1, 0})}, {boolean({2}, {0, 1})}},
      {"aten::bitwise_and.Tensor_out", {i64({2}, {6, 5}), i64({}, {3})}, {i64({2}, {2, 1})}},
      // The result of a comparison may be stored in another dtype.
      {"aten::eq.Scalar_out", {f32({2}, {1, 2}), integer(1)}, {f32({2}, {1, 0})}},
      {"aten::isnan.out", {f32({2}, {kNan, 1})}, {boolean({2}, {1, 0})}},
  });
}

TEST(Elementwise, AnyNonZeroByteIsTrue) {
  Values condition = boolean({3}, {});
  condition.dtype = DType::kU8;  // stored bytes 0, 1 and 255 of a bool
  condition.values = {0, 1, 255};
  ProgramBuilder program;
  const int32_t mask = program.constant(condition);
  program.tensor(mask).dtype = DType::kBool;
  const int32_t out = program.planned(DType::kI64, {3});
  program.method().outputs = {out};
  program.call("aten::add.out",
               {mask, program.constant(i64({}, {0})), program.add(int64_t{1}), out});
  Method method = *program.load();
  ASSERT_TRUE(method.execute());
  EXPECT_EQ(decode(method.output(0)).values, (std::vector<double>{0, 1, 1}));
}

TEST(Elementwise, WhereClampAndMaskedFill) {
  check_cases({
      {"aten::where.self_out",
       {boolean({2, 1}, {1, 0}), f32({2}, {1, 2}), f32({}, {-kInf})},
       {f32({2, 2}, {1, 2, -kInf, -kInf})}},
      {"aten::where.self_out",
       {boolean({2}, {1, 0}), i64({2}, {1, 2}), f32({}, {0.5})},
       {f32({2}, {1, 0.5})}},
      {"aten::clamp.out", {f32({4}, {-1, 0.5, 2, kNan}), 0.0, 1.0}, {f32({4}, {0, 0.5, 1, kNan})}},
      {"aten::clamp.out", {i64({3}, {-1, 5, 9}), NoValue{}, integer(6)}, {i64({3}, {-1, 5, 6})}},
      {"aten::masked_fill.Scalar_out",
       {f32({2, 2}, {1, 2, 3, 4}), boolean({2}, {0, 1}), -kInf},
       {f32({2, 2}, {1, -kInf, 3, -kInf})}},
  });
}

TEST(Elementwise, UnaryFunctionsMatchTheCLibrary) {
  const std::vector<double> x = {-3, -0.5, 0, 1e-3, 0.7, 2, 20};
  struct Row {
    std::string name;
    double (*f)(double);
  };
  const std::vector<Row> rows = {
      {"exp", [](double v) { return std::exp(v); }},
      {"expm1", [](double v) { return std::expm1(v); }},
      {"log1p", [](double v) { return std::log1p(v); }},
      {"log", [](double v) { return std::log(v); }},
      {"sqrt", [](double v) { return std::sqrt(v); }},
      {"rsqrt", [](double v) { return 1 / std::sqrt(v); }},
      {"reciprocal", [](double v) { return 1 / v; }},
      {"sigmoid", [](double v) { return 1 / (1 + std::exp(-v)); }},
      {"tanh", [](double v) { return std::tanh(v); }},
      {"sin", [](double v) { return std::sin(v); }},
      {"cos", [](double v) { return std::cos(v); }},
      {"erf", [](double v) { return std::erf(v); }},
      {"abs", [](double v) { return std::abs(v); }},
      {"neg", [](double v) { return -v; }},
      {"relu", [](double v) { return v < 0 ? 0 : v; }},
      {"floor", [](double v) { return std::floor(v); }},
      {"ceil", [](double v) { return std::ceil(v); }},
      {"round", [](double v) { return std::nearbyint(v); }},
      {"trunc", [](double v) { return std::trunc(v); }},
      {"sign", [](double v) { return static_cast<double>((v > 0) - (v < 0)); }},
  };
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const Values in{dtype, {7}, x};
    const Values rounded = decode({dtype, {7}, encode(in)});
    for (const Row& row : rows) {
      Values want{dtype, {7}, {}};
      for (double v : rounded.values) want.values.push_back(row.f(v));
      check_cases({{"aten::" + row.name + ".out", {in}, {want}, 2e-6}});
    }
  }
}

TEST(Elementwise, FunctionsOfIntegersAreFloating) {
  check_cases({
      {"aten::exp.out", {i64({2}, {0, 1})}, {f32({2}, {1, std::exp(1.0)})}},
      {"aten::sqrt.out", {i64({1}, {16})}, {f32({1}, {4})}},
      {"aten::floor.out", {i64({1}, {-5})}, {i64({1}, {-5})}},
      {"aten::abs.out", {i64({1}, {-5})}, {i64({1}, {5})}},
  });
}

TEST(Elementwise, Gelu) {
  const auto exact = [](double v) { return v * 0.5 * std::erfc(-v / std::sqrt(2.0)); };
  const auto tanh_form = [](double v) {
    return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  };
  const std::vector<double> x = {-2, -0.5, 0, 1, 3};
  Values none = f32({5}, {});
  Values tanh = f32({5}, {});
  for (double v : x) none.values.push_back(exact(v));
  for (double v : x) tanh.values.push_back(tanh_form(v));
  check_cases({{"aten::gelu.out", {f32({5}, x), std::string("none")}, {none}},
               {"aten::gelu.out", {f32({5}, x), std::string("tanh")}, {tanh}}});
  check_refused({{"aten::gelu.out", {f32({5}, x), std::string("erf")}, {none}, "approximation"}});
}

TEST(Elementwise, ConversionsBetweenAllDtypes) {
  const std::vector<DType> dtypes = {DType::kBool, DType::kU8,  DType::kI8,  DType::kI16,
                                     DType::kI32,  DType::kI64, DType::kF16, DType::kBF16,
                                     DType::kF32,  DType::kF64};
  for (DType from : dtypes) {
    for (DType to : dtypes) {
      const std::vector<double> values = {0, 1};
      check_cases({{"aten::_to_copy.out",
                    {Values{from, {2}, values}, false, NoValue{}},
                    {Values{to, {2}, values}}}});
    }
  }
  check_cases({
      {"aten::_to_copy.out",
       {f32({6}, {2.9, -2.9, kNan, kInf, -kInf, 1e30}), false, NoValue{}},
       {i32({6}, {2, -2, 0, 2147483647, -2147483648.0, 2147483647})}},
      {"aten::_to_copy.out",
       {i64({1}, {(1 << 24) + 1}), false, NoValue{}},
       {f64({1}, {(1 << 24) + 1})},
       0},
      {"aten::_to_copy.out",
       {f32({3}, {kNan, 0.25, 0}), false, NoValue{}},
       {boolean({3}, {1, 1, 0})}},
      {"aten::copy.out",
       {f32({2, 2}, {0, 0, 0, 0}), i64({2}, {3, 4}), false},
       {f32({2, 2}, {3, 4, 3, 4})}},
  });
}

TEST(Elementwise, WhatDoesNotFitIsRefused) {
  const Values a = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  check_refused({
      {"aten::add.out", {a, f32({2}, {1, 2}), integer(1)}, {a}, "cannot be broadcast"},
      {"aten::add.out", {a, a, integer(1)}, {f32({3, 2}, {})}, "cannot take the result's shape"},
      {"aten::add.out", {a, a, integer(1)}, {f32({6}, {})}, "instruction 0 (aten::add.out)"},
      {"aten::add.out", {a, a, integer(1)}, {i64({2, 3}, {})}, "cannot be stored"},
      {"aten::floor_divide.out",
       {i64({2}, {1, 2}), i64({2}, {1, 0})},
       {i64({2}, {})},
       "division by zero"},
      {"aten::remainder.Scalar_out",
       {i64({1}, {1}), integer(0)},
       {i64({1}, {})},
       "division by zero"},
      {"aten::where.self_out",
       {f32({1}, {1}), f32({1}, {1}), f32({1}, {1})},
       {f32({1}, {})},
       "must be bool"},
      {"aten::clamp.out", {a, NoValue{}, NoValue{}}, {a}, "needs a limit"},
      {"aten::bitwise_and.Tensor_out", {a, a}, {a}, "not defined"},
      {"aten::exp.out", {i64({1}, {1})}, {i64({1}, {})}, "cannot be stored"},
  });
}

// Shapes are random and broadcast, and so long that they are cut into chunks and pieces. Plain
// loops give the expected values.
TEST(Elementwise, BroadcastingMatchesIndexArithmetic) {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    Shape out, a, b;
    const size_t rank = 1 + random() % 4;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t size = 1 + static_cast<int64_t>(random() % (round % 10 == 0 ? 40 : 7));
      out.push_back(size);
      a.push_back(random() % 3 == 0 ? 1 : size);
      b.push_back(random() % 3 == 0 || a.back() == 1 ? size : (random() % 3 == 0 ? 1 : size));
    }
    const auto fill = [&](const Shape& shape, DType dtype) {
      Values values{dtype, shape, {}};
      int64_t n = 1;
      for (int64_t size : shape) n *= size;
      for (int64_t i = 0; i < n; ++i) values.values.push_back(static_cast<double>(random() % 100));
      return values;
    };
    const Values x = fill(a, round % 2 == 0 ? DType::kF32 : DType::kI32);
    const Values y = fill(b, round % 3 == 0 ? DType::kBF16 : DType::kF32);
    Values want = fill(out, DType::kF32);
    for (size_t i = 0; i < want.values.size(); ++i) {
      size_t rest = i, at_x = 0, at_y = 0, step_x = 1, step_y = 1;
      for (size_t d = rank; d-- > 0;) {
        const size_t at = rest % static_cast<size_t>(out[d]);
        rest /= static_cast<size_t>(out[d]);
        if (a[d] > 1) at_x += at * step_x;
        if (b[d] > 1) at_y += at * step_y;
        step_x *= static_cast<size_t>(a[d]);
        step_y *= static_cast<size_t>(b[d]);
      }
      want.values[i] = x.values[at_x] - y.values[at_y];
    }
    SCOPED_TRACE(to_string(a) + " - " + to_string(b));
    check_cases({{"aten::sub.out", {x, y, integer(1)}, {want}}});
  }
}

TEST(Elementwise, LongRowsCrossChunksAndPieces) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kI64}) {
    constexpr int64_t kRows = 3, kLength = 40'000;
    Values x{dtype, {kRows, kLength}, {}};
    Values scale{dtype, {kRows, 1}, {2, 3, 4}};
    Values want = x;
    for (int64_t i = 0; i < kRows * kLength; ++i) {
      x.values.push_back(static_cast<double>(i % 29));
      const int64_t factor = 2 + i / kLength;
      want.values.push_back(static_cast<double>(i % 29 * factor));
    }
    check_cases({{"aten::mul.out", {x, scale}, {want}}, {"aten::mul.out", {scale, x}, {want}}});
  }
}

}  // namespace
}  // namespace ferry::runner::elementwise_test
