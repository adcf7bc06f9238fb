// Inputs for methods, and what every error of a method has.
#pragma once

#include <gtest/gtest.h>

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

}  // namespace ferry::runner
