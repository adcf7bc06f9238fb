// Transforms by their definition, and the operators that take no complex numbers.
#include <complex>
#include <numbers>

#include "tests/runner/op_cases.h"

namespace ferry::runner::fourier_test {
namespace {

std::vector<double> signal(int64_t n) {
  std::vector<double> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>((i * 29 + 5) % 16) / 8 - 1;
  return x;
}

// The half of the transform of `x`, as pairs.
std::vector<double> definition(const std::vector<double>& x, double scale) {
  std::vector<double> pairs;
  const size_t n = x.size();
  for (size_t k = 0; k <= n / 2; ++k) {
    std::complex<double> sum = 0;
    for (size_t i = 0; i < n; ++i) {
      sum += x[i] * std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(i * k % n) /
                                        static_cast<double>(n));
    }
    pairs.push_back(sum.real() * scale);
    pairs.push_back(sum.imag() * scale);
  }
  return pairs;
}

// A program that transforms a constant, and then does what `rest` appends.
struct Spectrum {
  ProgramBuilder program;
  int32_t half;

  Spectrum(const Values& x, Shape shape, int64_t normalization, std::vector<int64_t> dims) {
    half = program.planned(DType::kC64, shape);
    const int32_t from = program.constant(x), over = program.int_list(dims);
    const int32_t scale = program.add(normalization), onesided = program.add(true);
    program.call("aten::_fft_r2c.out", {from, over, scale, onesided, half});
  }
  Result<Values> run(int32_t output) {
    program.method().outputs = {output};
    Method method = FERRY_TRY(program.load({.poison = true}));
    FERRY_RETURN_IF_ERROR(method.execute());
    return decode(method.output(0));
  }
};

TEST(Fourier, HalfOfASpectrumIsThatOfTheDefinition) {
  for (const int64_t n : {1, 2, 6, 7, 16, 30, 50}) {
    for (const int64_t normalization : {0, 1, 2}) {
      const Values x = f32({n}, signal(n));
      Spectrum spectrum(x, {n / 2 + 1}, normalization, {0});
      const int32_t out = spectrum.program.planned(DType::kF32, {n / 2 + 1, 2});
      spectrum.program.call("aten::view_as_real_copy.out", {spectrum.half, out});
      const double scale = normalization == 0   ? 1
                           : normalization == 1 ? 1 / std::sqrt(static_cast<double>(n))
                                                : 1 / static_cast<double>(n);
      const auto got = spectrum.run(out);
      ASSERT_TRUE(got) << got.error().message;
      expect_close(*got, f32({n / 2 + 1, 2}, definition(x.values, scale)), 1e-5);
    }
  }
}

TEST(Fourier, TheInverseGivesTheSignalBack) {
  for (const int64_t n : {1, 4, 5, 12}) {
    const Values x = f32({3, n}, signal(3 * n));
    Spectrum spectrum(x, {3, n / 2 + 1}, 0, {0, 1});
    const int32_t out = spectrum.program.planned(DType::kF32, {3, n});
    const int32_t dims = spectrum.program.int_list({0, 1});
    const int32_t normalization = spectrum.program.add(int64_t{2}),
                  length = spectrum.program.add(n);
    spectrum.program.call("aten::_fft_c2r.out", {spectrum.half, dims, normalization, length, out});
    const auto got = spectrum.run(out);
    ASSERT_TRUE(got) << got.error().message;
    expect_close(*got, x, 1e-6);
  }
}

TEST(Fourier, MagnitudesAreReal) {
  Spectrum spectrum(f32({4}, {1, 2, 3, 4}), {3}, 0, {0});
  const int32_t out = spectrum.program.planned(DType::kF32, {3});
  spectrum.program.call("aten::abs.out", {spectrum.half, out});
  const auto got = spectrum.run(out);
  ASSERT_TRUE(got) << got.error().message;
  expect_close(*got, f32({3}, {10, std::sqrt(8.0), 2}), 1e-6);
}

TEST(Fourier, OtherOperatorsTakeNoComplexNumbers) {
  Spectrum spectrum(f32({4}, {1, 2, 3, 4}), {3}, 0, {0});
  const int32_t out = spectrum.program.planned(DType::kC64, {3});
  spectrum.program.call("aten::neg.out", {spectrum.half, out});
  const auto refused = spectrum.program.load();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find("(aten::neg.out): dtype c64"), std::string::npos)
      << refused.error().message;
  Spectrum port(f32({4}, {1, 2, 3, 4}), {3}, 0, {0});
  const auto output = port.run(port.half);
  ASSERT_FALSE(output);
  EXPECT_EQ(output.error().code, ErrorCode::kUnsupported);
}

TEST(Fourier, WhatHasNoTransformIsRefused) {
  const Values x = f32({4}, {1, 2, 3, 4});
  const struct {
    Shape half;
    int64_t normalization;
    std::vector<int64_t> dims;
    std::string message;
  } kCases[] = {{{3}, 3, {0}, "normalization 3"}, {{3}, 0, {1}, "dimension 1 cannot"},
                {{3}, 0, {-1}, "dimension -1"},   {{3}, 0, {0, 0}, "dimension 0 cannot"},
                {{3}, 0, {}, "no dimension"},     {{4}, 0, {0}, "cannot take"}};
  for (const auto& c : kCases) {
    Spectrum spectrum(x, c.half, c.normalization, c.dims);
    const int32_t out = spectrum.program.planned(DType::kF32, {c.half[0], 2});
    spectrum.program.call("aten::view_as_real_copy.out", {spectrum.half, out});
    const auto got = spectrum.run(out);
    ASSERT_FALSE(got) << c.message;
    EXPECT_NE(got.error().message.find(c.message), std::string::npos) << got.error().message;
  }
  check_refused(
      {{"aten::_fft_r2c.out", {x, ints({0}), integer(0), true}, {f32({3}, {})}, "must be c64"}});
  Spectrum spectrum(x, {3}, 0, {0});
  const int32_t out = spectrum.program.planned(DType::kF32, {7});
  const int32_t dims = spectrum.program.int_list({0});
  const int32_t normalization = spectrum.program.add(int64_t{0});
  const int32_t length = spectrum.program.add(int64_t{7});
  spectrum.program.call("aten::_fft_c2r.out", {spectrum.half, dims, normalization, length, out});
  const auto got = spectrum.run(out);
  ASSERT_FALSE(got);
  EXPECT_NE(got.error().message.find("no half of 7"), std::string::npos) << got.error().message;
}

}  // namespace
}  // namespace ferry::runner::fourier_test
