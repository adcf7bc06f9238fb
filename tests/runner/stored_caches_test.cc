// Attention over f16, bf16 and i8 caches gives the same bits whether their values are converted or
// not. They are converted wherever a program could see the difference.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/runner/op_runner.h"

namespace ferry::runner::stored_caches_test {
namespace {

constexpr int64_t kContext = 9, kHeads = 2, kDim = 5, kTokens = 3, kPosition = 4;

enum class Use {
  kPlain,
  kFromStart,      // the slice has positions from 2 on
  kShared,         // the keys are the values too
  kOutput,         // the f32 keys are an output
  kRead,           // another operator reads the f32 keys
  kOverwritten,    // the cache is written before the attention
  kOtherRange,     // codes have another range
  kOtherPositions  // the scales belong to other positions
};

Values some(DType dtype, const Shape& shape, double least = 0) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  Values values{dtype, shape};
  for (int64_t i = 0; i < n; ++i) {
    const double wave = std::sin(static_cast<double>(i) + least);
    values.values.push_back(dtype == DType::kI8 ? static_cast<double>(i * 37 % 256 - 128)
                            : least > 0         ? least + wave * wave
                                                : wave);
  }
  return values;
}

class Attention {
 public:
  Attention(DType dtype, Use use) : dtype_(dtype), use_(use) {
    const int64_t from = use == Use::kFromStart ? 2 : 0;
    start_ = program.add(from);
    end_ = program.add(kPosition + kTokens);
    count_ = kPosition + kTokens - from;
    keys = real();
    const int32_t values = use == Use::kShared ? keys : real();
    if (use == Use::kOverwritten) overwrite();
    const int32_t query = program.constant(some(DType::kF32, {1, kTokens, 2 * kHeads, kDim}));
    const int32_t out = program.planned(DType::kF32, {1, kTokens, 2 * kHeads, kDim});
    program.call("llama::custom_sdpa.out",
                 {query, keys, values, program.add(kPosition - from), none(), program.add(0.0),
                  program.add(true), none(), out});
    program.method().outputs = {out};
    if (use == Use::kOutput) program.method().outputs.push_back(keys);
    if (use == Use::kRead) negate(keys);
  }

  Method load(bool literal) { return *program.load({.poison = true, .literal = literal}); }
  std::vector<Values> run(Method& method) {
    const Status status = method.execute();
    EXPECT_TRUE(status) << status.error().message;
    std::vector<Values> outputs;
    for (size_t i = 0; i < method.output_count(); ++i) outputs.push_back(decode(method.output(i)));
    return outputs;
  }
  // Returns whether the values of the cache were computed.
  bool copied(const Method& method) const {
    return !std::isnan(decode(*method.value(keys)).values.front());
  }

  ProgramBuilder program;
  int32_t keys = 0, scales = 0;

 private:
  int32_t none() { return program.add(pte::None{}); }
  int32_t integer(int64_t n) { return program.add(n); }

  int32_t slice(int32_t buffer, int32_t start) {
    const pte::Tensor& whole = program.tensor(buffer);
    const int32_t out = program.planned(whole.dtype, {1, count_, whole.sizes[2], whole.sizes[3]});
    program.call("aten::slice_copy.Tensor_out", {buffer, integer(1), start, end_, integer(1), out});
    return out;
  }
  int32_t converted(int32_t value, DType to) {
    const pte::Tensor& from = program.tensor(value);
    const int32_t out = program.planned(to, Shape(from.sizes.begin(), from.sizes.end()));
    program.call("aten::_to_copy.out", {value, program.add(false), none(), out});
    return out;
  }
  // Adds the f32 values of a cache.
  int32_t real() {
    buffer_ = program.initialised(some(dtype_, {1, kContext, kHeads, kDim}));
    if (dtype_ != DType::kI8) return converted(slice(buffer_, start_), DType::kF32);
    scales = program.initialised(some(DType::kF32, {1, kContext, kHeads, 1}, 0.01));
    const int32_t points = program.initialised(some(DType::kI8, {1, kContext, kHeads, 1}));
    const int32_t codes = slice(buffer_, start_);
    const bool other = use_ == Use::kOtherPositions;
    const int32_t by_row = slice(scales, other ? integer(0) : start_);
    const int32_t wide = converted(slice(points, start_), DType::kI64);
    const int32_t out = program.planned(DType::kF32, {1, count_, kHeads, kDim});
    const auto i8 = dtype_info(DType::kI8).executorch, f32 = dtype_info(DType::kF32).executorch;
    program.call("quantized_decomposed::dequantize_per_token.out",
                 {codes, by_row, wide, integer(use_ == Use::kOtherRange ? -127 : -128),
                  integer(127), integer(i8), integer(f32), out});
    return out;
  }
  void overwrite() {
    const Values row = some(dtype_, {1, 1, kHeads, kDim}, 0.5);
    program.call("llama::update_cache.out",
                 {program.constant(row), buffer_, integer(0), program.planned(DType::kF32, {1})});
  }
  void negate(int32_t value) {
    const int32_t out = program.planned(DType::kF32, {1, count_, kHeads, kDim});
    program.call("aten::neg.out", {value, out});
    program.method().outputs.push_back(out);
  }

  DType dtype_;
  Use use_;
  int32_t start_ = 0, end_ = 0, buffer_ = 0;
  int64_t count_ = 0;
};

void expect_same(const std::vector<Values>& a, const std::vector<Values>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].shape, b[i].shape);
    EXPECT_EQ(a[i].values, b[i].values);
  }
}

class StoredCaches : public testing::TestWithParam<DType> {};

TEST_P(StoredCaches, AreReadWhereTheyAre) {
  for (const Use use : {Use::kPlain, Use::kFromStart, Use::kShared}) {
    SCOPED_TRACE(static_cast<int>(use));
    Attention attention(GetParam(), use);
    Method stated = attention.load(true), method = attention.load(false);
    for (int call = 0; call < 2; ++call) {
      expect_same(attention.run(method), attention.run(stated));
      EXPECT_FALSE(attention.copied(method));
      EXPECT_TRUE(attention.copied(stated));
    }
  }
}

TEST_P(StoredCaches, AreCopiedWhereThatCouldBeTold) {
  for (const Use use : {Use::kOutput, Use::kRead, Use::kOverwritten}) {
    SCOPED_TRACE(static_cast<int>(use));
    Attention attention(GetParam(), use);
    Method stated = attention.load(true), method = attention.load(false);
    expect_same(attention.run(method), attention.run(stated));
    EXPECT_TRUE(attention.copied(method));
  }
}

TEST_P(StoredCaches, AreCopiedForAnObserver) {
  for (const Use use : {Use::kPlain, Use::kShared}) {
    Attention attention(GetParam(), use);
    Method stated = attention.load(true), method = attention.load(false);
    expect_same(attention.run(method), attention.run(stated));
    std::vector<double> seen;
    ASSERT_TRUE(method.observe(attention.keys,
                               [&](const TensorView& view) { seen = decode(view).values; }));
    expect_same(attention.run(method), attention.run(stated));
    EXPECT_EQ(seen, decode(*stated.value(attention.keys)).values);
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, StoredCaches,
                         testing::Values(DType::kF16, DType::kBF16, DType::kI8),
                         [](const auto& each) { return std::string(dtype_name(each.param)); });

TEST(StoredCachesOfCodes, ThatDoNotGoTogetherAreLeftToTheOperator) {
  for (const Use use : {Use::kOtherPositions, Use::kOtherRange}) {
    SCOPED_TRACE(static_cast<int>(use));
    Attention attention(DType::kI8, use);
    Method stated = attention.load(true), method = attention.load(false);
    expect_same(attention.run(method), attention.run(stated));
    EXPECT_TRUE(attention.copied(method));
  }
}

TEST(StoredCachesOfCodes, RefuseTheScalesThatTheOperatorRefuses) {
  for (const double scale : {0.0, -1.0, 1e-39, 1e38, std::nan("")}) {
    Attention attention(DType::kI8, Use::kPlain);
    pte::Tensor& buffer = attention.program.tensor(attention.scales);
    const Values bad{
        DType::kF32, {1, kContext, kHeads, 1}, std::vector<double>(kContext * kHeads, scale)};
    const std::vector<std::byte> bytes = encode(bad);
    attention.program.loaded().data.initial[buffer.data_index] = bytes;
    if (scale == 0) {  // unwritten rows
      Method stated = attention.load(true), method = attention.load(false);
      expect_same(attention.run(method), attention.run(stated));
      continue;
    }
    Method stated = attention.load(true), method = attention.load(false);
    const Status want = stated.execute(), got = method.execute();
    ASSERT_FALSE(want);
    ASSERT_FALSE(got);
    EXPECT_NE(want.error().message.find("a scale of"), std::string::npos);
    EXPECT_NE(got.error().message.find("a scale of"), std::string::npos);
  }
}

}  // namespace
}  // namespace ferry::runner::stored_caches_test
