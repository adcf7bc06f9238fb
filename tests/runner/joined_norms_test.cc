// RMS norms have the same bits as one step and as the steps that a program states. They are stated
// steps wherever a program could see the difference.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/runner/method_testing.h"

namespace ferry::runner::joined_norms_test {
namespace {

constexpr int64_t kRows = 5, kColumns = 77;

// How the program differs from a norm with a weight whose x has readers besides the norm.
enum class Use {
  kPlain,
  kNoWeight,
  kWeightInF32,     // the product with the weight is f32 too
  kSquaresRead,     // another operator reads the squares
  kInverseOutput,   // the factor of each row is an output
  kOtherMean,       // the mean of columns
  kNoKeptDim,       // the mean drops the dimension; the rows are as many as the columns
  kTwiceEps,        // add has an alpha of 2
  kOverwritten,     // x is written after its squares were computed
  kMatrixOfWeights  // the weight has a value for each row too
};

class Norm {
 public:
  Norm(DType dtype, Use use) : use_(use) {
    const int64_t rows = use == Use::kNoKeptDim ? kColumns : kRows;
    shape_ = {rows, kColumns};
    stored_ = program.initialised(some(dtype, shape_, 3));
    const int32_t x = dtype == DType::kF32 ? stored_ : cast(stored_, DType::kF32);
    squares = planned(DType::kF32, shape_);
    program.call("aten::mul.out", {x, x, squares});
    inverse = factor(squares);
    if (use == Use::kOverwritten) program.call("aten::neg.out", {squares, x});
    out_ = planned(DType::kF32, shape_);
    program.call("aten::mul.out", {x, inverse, out_});
    if (use == Use::kWeightInF32) weigh(DType::kF32);
    if (dtype != DType::kF32) out_ = cast(out_, dtype);
    if (use != Use::kNoWeight && use != Use::kWeightInF32) weigh(dtype);
    program.method().outputs = {out_};
    if (use == Use::kInverseOutput) program.method().outputs.push_back(inverse);
    if (use == Use::kSquaresRead) {
      program.method().outputs.push_back(planned(DType::kF32, shape_));
      program.call("aten::neg.out", {squares, program.method().outputs.back()});
    }
  }

  Method load(bool literal) { return *program.load({.poison = true, .literal = literal}); }
  // Returns whether the squares were computed.
  bool stated(const Method& method) const {
    return !std::isnan(decode(*method.value(squares)).values.front());
  }

  ProgramBuilder program;
  int32_t squares = 0, inverse = 0;

 private:
  static Values some(DType dtype, const Shape& shape, double size) {
    int64_t n = 1;
    for (const int64_t extent : shape) n *= extent;
    Values values{dtype, shape};
    for (int64_t i = 0; i < n; ++i) {
      values.values.push_back(size * std::sin(static_cast<double>(i * i)));
    }
    return values;
  }
  int32_t planned(DType dtype, const Shape& shape) { return program.planned(dtype, shape); }
  int32_t cast(int32_t value, DType to) {
    const int32_t out = planned(to, shape_);
    program.call("aten::_to_copy.out", {value, program.add(false), program.add(pte::None{}), out});
    return out;
  }
  int32_t factor(int32_t of) {
    const bool drop = use_ == Use::kNoKeptDim, columns = use_ == Use::kOtherMean;
    const Shape means = drop ? Shape{kColumns} : columns ? Shape{1, kColumns} : Shape{kRows, 1};
    const int32_t mean = planned(DType::kF32, means), sum = planned(DType::kF32, means),
                  root = planned(DType::kF32, means);
    program.call("aten::mean.out", {of, program.int_list({columns ? 0 : -1}), program.add(!drop),
                                    program.add(pte::None{}), mean});
    const int32_t eps = program.constant(f32({}, {1e-5}));
    program.call("aten::add.out",
                 {mean, eps, program.add(int64_t{use_ == Use::kTwiceEps ? 2 : 1}), sum});
    program.call("aten::rsqrt.out", {sum, root});
    return root;
  }
  void weigh(DType dtype) {
    const Shape shape = use_ == Use::kMatrixOfWeights ? shape_ : Shape{kColumns};
    const int32_t weight = program.constant(some(dtype, shape, 1.5));
    const int32_t out = planned(dtype, shape_);
    program.call("aten::mul.out", {out_, weight, out});
    out_ = out;
  }

  Use use_;
  Shape shape_;
  int32_t stored_ = 0, out_ = 0;
};

class JoinedNorms : public testing::TestWithParam<DType> {};

TEST_P(JoinedNorms, HaveTheBitsOfTheirSteps) {
  for (const Use use : {Use::kPlain, Use::kNoWeight, Use::kWeightInF32, Use::kMatrixOfWeights}) {
    SCOPED_TRACE(static_cast<int>(use));
    Norm norm(GetParam(), use);
    Method stated = norm.load(true), method = norm.load(false);
    for (int call = 0; call < 2; ++call) {
      expect_same_outputs(method, stated);
      EXPECT_FALSE(norm.stated(method));
      EXPECT_TRUE(norm.stated(stated));
    }
  }
}

TEST_P(JoinedNorms, AreStepsWhereThatCouldBeTold) {
  for (const Use use : {Use::kSquaresRead, Use::kInverseOutput, Use::kOtherMean, Use::kNoKeptDim,
                        Use::kTwiceEps, Use::kOverwritten}) {
    SCOPED_TRACE(static_cast<int>(use));
    Norm norm(GetParam(), use);
    Method stated = norm.load(true), method = norm.load(false);
    expect_same_outputs(method, stated);
    EXPECT_TRUE(norm.stated(method));
  }
}

TEST_P(JoinedNorms, AreStepsForAnObserver) {
  Norm norm(GetParam(), Use::kPlain);
  Method stated = norm.load(true), method = norm.load(false);
  expect_observable(method, stated, norm.inverse);
}

INSTANTIATE_TEST_SUITE_P(DTypes, JoinedNorms,
                         testing::Values(DType::kF32, DType::kF16, DType::kBF16),
                         [](const auto& each) { return std::string(dtype_name(each.param)); });

}  // namespace
}  // namespace ferry::runner::joined_norms_test
