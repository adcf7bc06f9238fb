// Quantization. Expected codes and values are computed by hand from
//   code = clamp(round(x * (1 / scale)) + zero_point, min, max), halves to even
//   x = (code - zero_point) * scale
#include <cmath>
#include <limits>
#include <random>

#include "tests/runner/op_cases.h"

namespace ferry::runner::quantize_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kMin32 = -2147483648.0, kMax32 = 2147483647.0;

Values vector_of(DType dtype, std::vector<double> values) {
  const Shape shape = {static_cast<int64_t>(values.size())};
  return {dtype, shape, std::move(values)};
}

struct Encoding {
  DType dtype;
  double scale;
  int64_t zero_point, least, greatest;
  Arg scalar_type() const { return integer(dtype_info(dtype).executorch); }
  std::vector<Arg> args(const Values& input) const {
    return {input, scale, integer(zero_point), integer(least), integer(greatest), scalar_type()};
  }
};

struct CodesCase {
  Encoding encoding;
  std::vector<double> values, codes;
};

void check_codes(const std::vector<CodesCase>& cases) {
  for (const CodesCase& c : cases) {
    check_cases({{"quantized_decomposed::quantize_per_tensor.out",
                  c.encoding.args(vector_of(DType::kF32, c.values)),
                  {vector_of(c.encoding.dtype, c.codes)},
                  0}});
  }
}

TEST(Quantize, RoundsHalvesToEvenAndClamps) {
  check_codes({
      {{DType::kU8, 0.5, 10, 0, 255},
       {0, 0.25, 0.75, 1.25, -0.25, -0.75, 100, 122.5, 123, 200, -5, -5.25, -5.5, -100},
       {10, 10, 12, 12, 10, 8, 210, 255, 255, 255, 0, 0, 0, 0}},
      {{DType::kI8, 1, 0, -128, 127},
       {0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, -127.5, -128.5, -129},
       {0, 2, 2, 0, -2, 126, 127, -128, -128, -128}},
      {{DType::kU16, 1, 0, 0, 65535},
       {40000.5, 40001.5, 65534.5, 65535, 65535.5, 70000, -0.5, -1},
       {40000, 40002, 65534, 65535, 65535, 65535, 0, 0}},
      {{DType::kI16, 1, 0, -32768, 32767},
       {32766.5, 32767.5, -32767.5, -32768.5, 0.5},
       {32766, 32767, -32768, -32768, 0}},
      {{DType::kI32, 1, 0, -2147483648, 2147483647},
       {0.5, 1.5, 16777216, 2147483520, 2147483648.0, -2147483648.0, 1e30, -1e30},
       {0, 2, 16777216, 2147483520, kMax32, kMin32, kMax32, kMin32}},
      // The arguments limit the range of codes.
      {{DType::kI8, 1, 0, -127, 127}, {-128, -127, 200}, {-127, -127, 127}},
      {{DType::kU8, 1, 0, 7, 9}, {0, 8, 8.5, 100}, {7, 8, 8, 9}},
      {{DType::kU8, 1, 3, 5, 5}, {-10, 2, 10}, {5, 5, 5}},
  });
}

TEST(Quantize, ZeroPointsAtTheEnds) {
  check_codes({
      {{DType::kU8, 1, 0, 0, 255}, {-1, 0, 1, 255, 256}, {0, 0, 1, 255, 255}},
      {{DType::kU8, 1, 255, 0, 255}, {1, 0, -254.5, -253.5, -255, -256}, {255, 255, 1, 1, 0, 0}},
      {{DType::kU16, 0.25, 65535, 0, 65535},
       {0, -0.25, -0.125, -16383.75, -16384},
       {65535, 65534, 65535, 0, 0}},
      {{DType::kI16, 1, -32768, -32768, 32767},
       {0, -1, 65535, 65536},
       {-32768, -32768, 32767, 32767}},
      {{DType::kI32, 1, 2147483647, -2147483648, 2147483647},
       {1, 0, -2147483648.0, -4294967296.0},
       {kMax32, kMax32, -1, kMin32}},
  });
}

TEST(Quantize, InfinitiesAreClampedAndNanIsTheLeastCode) {
  for (const Encoding& e : {Encoding{DType::kU8, 0.5, 10, 0, 255},
                            {DType::kU8, 0.5, 10, 3, 200},
                            {DType::kI8, 0.5, 1, -128, 127},
                            {DType::kU16, 0.5, 10, 0, 65535},
                            {DType::kI16, 0.5, 10, -32768, 32767},
                            {DType::kI32, 0.5, 10, -2147483648, 2147483647}}) {
    const double least = static_cast<double>(e.least);
    const double greatest = static_cast<double>(e.greatest);
    check_codes({{e, {kNan, kInf, -kInf, 3e38, -3e38}, {least, greatest, least, greatest, least}}});
  }
}

// Official kernels multiply by the reciprocal in f32, which differs from a division where the
// quotient is next to a half.
TEST(Quantize, MultipliesByTheReciprocal) {
  check_codes(
      {{{DType::kU8, 0.1, 0, 0, 255},
        {1.5499999523162842, 1.9499999284744263, 3.250000238418579, 4.949999809265137},
        {16, 20, 33, 50}},  // a division would give 15, 19, 32, 49
       // The reciprocal of the scale as f32; the rounded f64 reciprocal would give 6, 9, 11.
       {{DType::kU8, 0.0123, 0, 0, 255},
        {0.0799499973654747, 0.11684998869895935, 0.14144998788833618},
        {7, 10, 12}}});
}

TEST(Quantize, HalvesAreReadAsTheyAre) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const Encoding e = {DType::kU8, 0.5, 100, 0, 255};
    check_cases({{"quantized_decomposed::quantize_per_tensor.out",
                  e.args(vector_of(dtype, {0.25, 0.75, -50, 77.5, 78, kNan, kInf})),
                  {vector_of(DType::kU8, {100, 102, 0, 255, 255, 0, 255})},
                  0}});
  }
}

TEST(Quantize, EveryElementOfALongTensor) {
  std::mt19937 random(1);
  Values x = f32({3, 70, 301}, {});
  Values codes{DType::kU16, x.shape, {}};
  Values back = x;
  back.values.clear();
  for (int i = 0; i < 3 * 70 * 301; ++i) {
    const double steps = static_cast<double>(random() % 150000) / 2 - 5000;
    x.values.push_back(steps / 4);
    codes.values.push_back(std::clamp(std::nearbyint(steps) + 1000, 0.0, 65535.0));
    back.values.push_back((codes.values.back() - 1000) / 4);
  }
  const Encoding e = {DType::kU16, 0.25, 1000, 0, 65535};
  check_cases({{"quantized_decomposed::quantize_per_tensor.out", e.args(x), {codes}, 0}});
  std::vector<Arg> args = e.args(codes);
  args.push_back(NoValue{});
  check_cases({{"quantized_decomposed::dequantize_per_tensor.out", args, {back}, 0}});
}

OpCase dequantize(const Encoding& e, std::vector<double> codes, std::vector<double> values,
                  DType dtype = DType::kF32) {
  std::vector<Arg> args = e.args(vector_of(e.dtype, std::move(codes)));
  args.push_back(integer(dtype_info(dtype).executorch));
  return {"quantized_decomposed::dequantize_per_tensor.out",
          args,
          {vector_of(dtype, std::move(values))},
          0};
}

TEST(Dequantize, SubtractsTheZeroPointAndScales) {
  check_cases({
      dequantize({DType::kU8, 0.5, 128, 0, 255}, {0, 128, 255}, {-64, 0, 63.5}),
      dequantize({DType::kU8, 2, 255, 0, 255}, {0, 255}, {-510, 0}),
      dequantize({DType::kI8, 0.25, -128, -128, 127}, {-128, 127}, {0, 63.75}),
      dequantize({DType::kU16, 0.0625, 32768, 0, 65535}, {0, 32769, 65535},
                 {-2048, 0.0625, 2047.9375}),
      dequantize({DType::kU16, 1, 65535, 0, 65535}, {0, 65535}, {-65535, 0}),
      dequantize({DType::kI16, 1, 32767, -32768, 32767}, {-32768, 32767}, {-65535, 0}),
      dequantize({DType::kI32, 1, -2147483648, -2147483648, 2147483647}, {kMax32, kMin32, -1},
                 {4294967296.0, 0, 2147483648.0}),
      // Codes outside of the range are decoded as they are.
      dequantize({DType::kU8, 1, 0, 10, 20}, {0, 255}, {0, 255}),
      dequantize({DType::kU8, 0.5, 0, 0, 255}, {1, 255}, {0.5, 127.5}, DType::kF16),
      dequantize({DType::kU8, 0.5, 0, 0, 255}, {1, 200}, {0.5, 100}, DType::kBF16),
  });
}

TEST(Quantize, WrongArgumentsAreRefused) {
  const std::string name = "quantized_decomposed::quantize_per_tensor.out";
  const Values x = f32({2}, {1, 2});
  const Values u8 = vector_of(DType::kU8, {0, 0});
  const auto refused = [&](const Encoding& e, const Values& in, const Values& out,
                           const std::string& message) {
    check_refused({{name, e.args(in), {out}, message}});
  };
  const Encoding good = {DType::kU8, 0.5, 10, 0, 255};
  const auto scaled = [&](double scale) {
    Encoding e = good;
    e.scale = scale;
    return e;
  };
  for (double scale : {0.0, -0.5, kNan, kInf, 1e-46, 1e-40, 1e39}) {
    refused(scaled(scale), x, u8, "a scale of ");
  }
  refused({DType::kU8, 0.5, 10, -1, 255}, x, u8, "codes from -1 to 255");
  refused({DType::kU8, 0.5, 10, 0, 256}, x, u8, "codes from 0 to 256");
  refused({DType::kU8, 0.5, 10, 9, 8}, x, u8, "codes from 9 to 8");
  refused({DType::kU8, 0.5, 256, 0, 255}, x, u8, "a zero point of 256");
  refused({DType::kU8, 0.5, -1, 0, 255}, x, u8, "a zero point of -1");
  refused({DType::kI8, 0.5, 10, 0, 100}, x, u8, "is not of scalar type 1");
  refused({DType::kF32, 0.5, 10, 0, 255}, x, x, "must be u8, i8, u16, i16 or i32");
  refused({DType::kI64, 0.5, 10, 0, 255}, x, i64({2}, {}), "must be u8, i8, u16, i16 or i32");
  refused(good, i64({2}, {1, 2}), u8, "must be f32, f16 or bf16");
  refused(good, vector_of(DType::kF64, {1, 2}), u8, "must be f32, f16 or bf16");
  refused(good, x, vector_of(DType::kU8, {0}), "cannot take the result's shape");
}

TEST(Dequantize, WrongArgumentsAreRefused) {
  const std::string name = "quantized_decomposed::dequantize_per_tensor.out";
  const Values codes = vector_of(DType::kU8, {1, 2});
  const Values out = f32({2}, {});
  const auto refused = [&](const Encoding& e, const Values& in, Arg dtype, const Values& to,
                           const std::string& message) {
    std::vector<Arg> args = e.args(in);
    args.push_back(std::move(dtype));
    check_refused({{name, args, {to}, message}});
  };
  const Encoding good = {DType::kU8, 0.5, 10, 0, 255};
  refused({DType::kU16, 0.5, 10, 0, 255}, codes, NoValue{}, out, "is not of scalar type 27");
  refused(good, codes, integer(5), out, "is not of the scalar type of the result");
  refused(good, codes, NoValue{}, vector_of(DType::kF16, {0, 0}),
          "is not of the scalar type of the result");
  refused(good, codes, integer(7), vector_of(DType::kF64, {0, 0}), "must be f32, f16 or bf16");
  refused(good, f32({2}, {1, 2}), NoValue{}, out, "must be u8, i8, u16, i16 or i32");
  refused({DType::kU8, -1, 10, 0, 255}, codes, NoValue{}, out, "a scale of -1");
  refused({DType::kU8, 1, 10, 0, 300}, codes, NoValue{}, out, "codes from 0 to 300");
  refused(good, codes, NoValue{}, f32({3}, {}), "cannot take the result's shape");
}

}  // namespace
}  // namespace ferry::runner::quantize_test
