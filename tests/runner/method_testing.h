// Inputs for methods, and expectations on errors and outputs of methods.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "runner/method.h"
#include "tests/runner/op_runner.h"

namespace ferry::runner {

// An input with its bytes.
struct Given {
  explicit Given(Values v) : values(std::move(v)), bytes(encode(values)) {}
  TensorView view() const { return {values.dtype, values.shape, bytes}; }
  Values values;
  std::vector<std::byte> bytes;
};

// A method that adds its input to a buffer and returns the sum.
struct Accumulator {
  explicit Accumulator(bool initial) {
    total = initial ? program.initialised(f32({2}, {10, 20})) : program.planned(DType::kF32, {2});
    const int32_t x = program.unplanned(DType::kF32, {2});
    const int32_t sum = program.planned(DType::kF32, {2});
    program.method().inputs = {x};
    program.method().outputs = {sum};
    program.call("aten::add.out", {total, x, program.add(int64_t{1}), sum});
    program.call("aten::copy_", {total, sum, program.add(false)});
  }
  std::vector<double> step(Method& method, double a, double b) {
    const Given x(f32({2}, {a, b}));
    EXPECT_TRUE(method.set_input(0, x.view()));
    EXPECT_TRUE(method.execute());
    return decode(method.output(0)).values;
  }
  ProgramBuilder program;
  int32_t total;
};

inline void expect_error(const Status& status, ErrorCode code, const std::string& message) {
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, code);
  EXPECT_NE(status.error().message.find(message), std::string::npos) << status.error().message;
  EXPECT_TRUE(status.error().message.starts_with("test.pte: ")) << status.error().message;
}

inline void expect_load_error(ProgramBuilder& program, ErrorCode code, const std::string& message) {
  const auto method = program.load();
  expect_error(method ? Status() : Status(Failure(method.error())), code, message);
}

// Executes both, which must have the same outputs to the bit; NaN is as NaN.
inline void expect_same_outputs(Method& method, Method& stated) {
  for (Method* each : {&method, &stated}) {
    const Status status = each->execute();
    ASSERT_TRUE(status) << status.error().message;
  }
  const auto same = [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); };
  for (size_t i = 0; i < stated.output_count(); ++i) {
    const Values a = decode(method.output(i)), b = decode(stated.output(i));
    EXPECT_EQ(a.shape, b.shape);
    EXPECT_TRUE(std::ranges::equal(a.values, b.values, same)) << "output " << i;
  }
}

// An observer of `value`, which a step left out, sees what the stated steps compute.
inline void expect_observable(Method& method, Method& stated, int32_t value) {
  expect_same_outputs(method, stated);
  std::vector<double> seen;
  ASSERT_TRUE(method.observe(value, [&](const TensorView& view) { seen = decode(view).values; }));
  expect_same_outputs(method, stated);
  EXPECT_EQ(seen, decode(*stated.value(value)).values);
}

}  // namespace ferry::runner
