// Attention over a cache that is an input gives the same bits whether the cache is copied or not.
// The cache is copied wherever a program could see the difference.
#include <gtest/gtest.h>

#include <cmath>

#include "core/encoding.h"
#include "tests/runner/op_runner.h"

namespace ferry::runner::joined_caches_test {
namespace {

enum class Use {
  kPlain,
  kColumns,        // the cache is joined along the last dimension
  kSliced,         // the slice is one head of the cache
  kOutput,         // the joined matrix is an output
  kRead,           // another operator reads it
  kOverwritten,    // the memory of the cache is used again before the product
  kHeadsBetween,   // the slice is not contiguous
  kOtherEncoding,  // codes have an encoding of their own
  // A step makes what is added, and nothing, or another step before the product, writes there
  // again. The last one adds a view without memory of its own.
  kMade,
  kMadeAndOverwritten,
  kViewAndOverwritten,
};

constexpr int64_t kHeads = 2, kDim = 5, kPast = 6, kNew = 2, kRows = 3;

Values some(DType dtype, const Shape& shape) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  Values values{dtype, shape};
  for (int64_t i = 0; i < n; ++i) {
    values.values.push_back(is_encoded(dtype) ? static_cast<double>(i * 37 % 256)
                                              : std::sin(static_cast<double>(i)));
  }
  return values;
}

// A bmm of `rows` with a cache, and the operators after it.
struct Attention {
  Attention(DType dtype, Use use) {
    const bool columns = use == Use::kColumns;
    const int64_t heads = use == Use::kSliced ? 1 : kHeads;
    const auto shape = [&](int64_t of, int64_t count) {
      return columns ? Shape{1, of, kDim, count} : Shape{1, of, count, kDim};
    };
    cache = some(dtype, shape(kHeads, kPast));
    int32_t value = program.unplanned(dtype, cache.shape);
    program.method().inputs = {value};
    if (use == Use::kSliced) value = slice(value, 1, 1, 2, shape(1, kPast));
    int64_t past = kPast;
    if (use == Use::kHeadsBetween) value = slice(value, 2, 1, kPast, shape(kHeads, --past));
    finish(dtype, use, value, shape(heads, kNew), shape(heads, past + kNew), heads, columns);
  }

  int32_t slice(int32_t value, int64_t dim, int64_t begin, int64_t end, const Shape& shape) {
    const int32_t out = program.planned(cache.dtype, shape);
    program.call("aten::slice_copy.Tensor_out",
                 {value, integer(dim), integer(begin), integer(end), integer(1), out});
    return out;
  }
  int32_t integer(int64_t n) { return program.add(n); }

  int32_t real(DType dtype, Use use, int32_t value) {
    if (dtype == DType::kF32) return value;
    const pte::Tensor& from = program.tensor(value);
    const Shape shape(from.sizes.begin(), from.sizes.end());
    const int32_t out = program.planned(DType::kF32, shape);
    if (is_encoded(dtype)) {
      const int64_t largest = use == Use::kOtherEncoding ? 200 : largest_code(dtype);
      program.call("quantized_decomposed::dequantize_per_tensor.out",
                   {value, program.add(0.013), integer(101), integer(0), integer(largest),
                    integer(dtype_info(dtype).executorch), program.add(pte::None{}), out});
    } else {
      program.call("aten::_to_copy.out",
                   {value, program.add(false), program.add(pte::None{}), out});
    }
    return out;
  }

  void finish(DType dtype, Use use, int32_t value, const Shape& added, const Shape& whole,
              int64_t heads, bool columns) {
    const int32_t past = real(dtype, use, value);
    joined = program.planned(DType::kF32, whole);
    int32_t fresh = program.constant(some(DType::kF32, added)), made = fresh;
    if (use >= Use::kMade) {
      made = program.planned(DType::kF32, added);
      program.call("aten::neg.out", {fresh, made});
      fresh = made;
    }
    if (use == Use::kViewAndOverwritten) {
      fresh = program.unplanned(DType::kF32, added);
      program.call("executorch_prim::et_view.default", {made, program.int_list(added), fresh});
    }
    program.call("aten::cat.out",
                 {program.add(pte::TensorList{{past, fresh}}), integer(columns ? 3 : 2), joined});
    const Shape matrix = {heads, whole[2], whole[3]};
    const int32_t view = program.planned(DType::kF32, matrix);
    program.tensor(view).allocation = program.tensor(joined).allocation;
    program.call("executorch_prim::et_view.default", {joined, program.int_list(matrix), view});
    const int32_t rows = program.constant(some(DType::kF32, {heads, kRows, whole[2]}));
    const int32_t out = program.planned(DType::kF32, {heads, kRows, whole[3]});
    if (use == Use::kOverwritten || use >= Use::kMadeAndOverwritten) {
      const int32_t other = program.planned(DType::kF32, {4});
      const int32_t used = use == Use::kOverwritten ? joined : made;
      program.tensor(other).allocation = program.tensor(used).allocation;
      program.call("aten::neg.out", {program.constant(some(DType::kF32, {4})), other});
    }
    program.call("aten::bmm.out", {rows, view, out});
    program.method().outputs = {out};
    if (use == Use::kOutput) program.method().outputs.push_back(joined);
    if (use == Use::kRead) {
      const int32_t negative = program.planned(DType::kF32, whole);
      program.call("aten::neg.out", {joined, negative});
      program.method().outputs.push_back(negative);
    }
  }

  Method load(bool literal) { return *program.load({.poison = true, .literal = literal}); }
  std::vector<Values> run(Method& method) {
    const std::vector<std::byte> bytes = encode(cache);
    EXPECT_TRUE(method.set_input(0, {cache.dtype, cache.shape, bytes}));
    const Status status = method.execute();
    EXPECT_TRUE(status) << status.error().message;
    std::vector<Values> outputs;
    for (size_t i = 0; i < method.output_count(); ++i) outputs.push_back(decode(method.output(i)));
    return outputs;
  }
  // Returns whether the cache was copied into the joined matrix.
  bool copied(const Method& method) const {
    return !std::isnan(decode(*method.value(joined)).values.front());
  }
  // Returns whether what is added was copied there.
  bool added(const Method& method) const {
    return !std::isnan(decode(*method.value(joined)).values.back());
  }

  ProgramBuilder program;
  Values cache;
  int32_t joined = 0;
};

void expect_same(const std::vector<Values>& a, const std::vector<Values>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].shape, b[i].shape);
    EXPECT_EQ(a[i].values, b[i].values);
  }
}

class JoinedCaches : public testing::TestWithParam<DType> {};

TEST_P(JoinedCaches, AreReadWhereTheyAre) {
  for (const Use use : {Use::kPlain, Use::kColumns, Use::kSliced}) {
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

TEST_P(JoinedCaches, AreCopiedWhereThatCouldBeTold) {
  for (const Use use : {Use::kOutput, Use::kRead, Use::kOverwritten, Use::kHeadsBetween}) {
    SCOPED_TRACE(static_cast<int>(use));
    Attention attention(GetParam(), use);
    Method stated = attention.load(true), method = attention.load(false);
    expect_same(attention.run(method), attention.run(stated));
    EXPECT_TRUE(attention.copied(method));
  }
}

TEST_P(JoinedCaches, AreReadBesideWhatIsAddedWhereItIs) {
  for (const Use use : {Use::kMade, Use::kMadeAndOverwritten, Use::kViewAndOverwritten}) {
    SCOPED_TRACE(static_cast<int>(use));
    Attention attention(GetParam(), use);
    Method stated = attention.load(true), method = attention.load(false);
    expect_same(attention.run(method), attention.run(stated));
    EXPECT_FALSE(attention.copied(method));
    EXPECT_EQ(attention.added(method), use != Use::kMade);
  }
}

TEST_P(JoinedCaches, AreCopiedForAnObserver) {
  Attention attention(GetParam(), Use::kPlain);
  Method stated = attention.load(true), method = attention.load(false);
  expect_same(attention.run(method), attention.run(stated));
  std::vector<double> seen;
  ASSERT_TRUE(method.observe(attention.joined,
                             [&](const TensorView& view) { seen = decode(view).values; }));
  expect_same(attention.run(method), attention.run(stated));
  EXPECT_EQ(seen, decode(*stated.value(attention.joined)).values);
}

INSTANTIATE_TEST_SUITE_P(DTypes, JoinedCaches,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16, DType::kU8,
                                         DType::kU16),
                         [](const auto& each) { return std::string(dtype_name(each.param)); });

TEST(JoinedCachesOfCodes, WithARangeOfTheirOwnAreLeftToTheOperator) {
  Attention attention(DType::kU8, Use::kOtherEncoding);
  Method stated = attention.load(true), method = attention.load(false);
  expect_same(attention.run(method), attention.run(stated));
  EXPECT_TRUE(attention.copied(method));
}

}  // namespace
}  // namespace ferry::runner::joined_caches_test
