// Tensors of programs whose dimensions lie in memory in another order than row-major are row-major
// in a method.
#include <gtest/gtest.h>

#include "tests/runner/op_runner.h"

namespace ferry::runner::method_dim_order_test {
namespace {

// The matrix [[1, 2, 3], [4, 5, 6]], stored by columns.
const std::vector<double> kStored = {1, 4, 2, 5, 3, 6}, kNegative = {-1, -2, -3, -4, -5, -6};

std::vector<double> first_output(ProgramBuilder& program, int32_t stored) {
  program.tensor(stored).dim_order = {1, 0};
  const int32_t out = program.planned(DType::kF32, {2, 3});
  program.tensor(out).dim_order = {1, 0};
  program.method().outputs = {out};
  program.call("aten::neg.out", {stored, out});
  auto method = program.load();
  EXPECT_TRUE(method);
  if (!method || !method->execute()) return {};
  EXPECT_EQ(method->output(0).shape, (Shape{2, 3}));
  return decode(method->output(0)).values;
}

TEST(MethodDimOrder, Constants) {
  ProgramBuilder program;
  EXPECT_EQ(first_output(program, program.constant(f32({2, 3}, kStored))), kNegative);
}

TEST(MethodDimOrder, InitialContents) {
  ProgramBuilder program;
  EXPECT_EQ(first_output(program, program.initialised(f32({2, 3}, kStored))), kNegative);
}

TEST(MethodDimOrder, ConstantsInF64) {
  ProgramBuilder program;
  const int32_t constant = program.constant(f32({2, 3}, kStored));
  program.tensor(constant).dim_order = {1, 0};
  const int32_t out = program.planned(DType::kF32, {2, 3});
  program.method().outputs = {out};
  program.call("aten::neg.out", {constant, out});
  MethodOptions options;
  options.f64 = true;
  auto method = program.load(options);
  ASSERT_TRUE(method);
  ASSERT_TRUE(method->execute());
  EXPECT_EQ(decode(method->output(0)).values, kNegative);
}

TEST(MethodDimOrder, CopiesInAnotherOrderKeepTheValues) {
  ProgramBuilder program;
  const int32_t constant = program.constant(f32({2, 3}, {1, 2, 3, 4, 5, 6}));
  const int32_t copy = program.planned(DType::kF32, {2, 3});
  program.tensor(copy).dim_order = {1, 0};
  const int32_t none = program.add(false), order = program.int_list({1, 0});
  program.call("dim_order_ops::_clone_dim_order.out", {constant, none, order, copy});
  const int32_t out = program.planned(DType::kF32, {2, 3});
  program.method().outputs = {out};
  program.call("aten::neg.out", {copy, out});
  auto method = program.load();
  ASSERT_TRUE(method);
  ASSERT_TRUE(method->execute());
  EXPECT_EQ(decode(method->output(0)).values, kNegative);
}

TEST(MethodDimOrder, StridesOfSuchATensorAreRefused) {
  ProgramBuilder program;
  const int32_t constant = program.constant(f32({2, 3}, kStored));
  program.tensor(constant).dim_order = {1, 0};
  const int32_t sizes = program.int_list({3}), strides = program.int_list({2});
  const int32_t offset = program.add(int64_t{0}), out = program.planned(DType::kF32, {3});
  program.call("aten::as_strided_copy.out", {constant, sizes, strides, offset, out});
  const auto method = program.load();
  ASSERT_FALSE(method);
  EXPECT_EQ(method.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(method.error().message.find("aten::as_strided_copy.out"), std::string::npos);
}

}  // namespace
}  // namespace ferry::runner::method_dim_order_test
