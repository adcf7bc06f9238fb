// Tables of operator cases: arguments and expected outs, whose dtypes and shapes the program
// declares.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/runner/op_runner.h"

namespace ferry::runner {

struct OpCase {
  std::string name;
  std::vector<Arg> args;
  std::vector<Values> expected;
  double tolerance = 1e-6;  // relative to the larger of 1 and the value
};

inline void expect_close(const Values& got, const Values& want, double tolerance) {
  EXPECT_EQ(got.shape, want.shape);
  ASSERT_EQ(got.values.size(), want.values.size());
  for (size_t i = 0; i < want.values.size(); ++i) {
    SCOPED_TRACE("element " + std::to_string(i));
    if (std::isnan(want.values[i])) {
      EXPECT_TRUE(std::isnan(got.values[i])) << got.values[i];
    } else if (std::isinf(want.values[i])) {
      EXPECT_EQ(got.values[i], want.values[i]);
    } else {
      EXPECT_NEAR(got.values[i], want.values[i],
                  tolerance * std::max(1.0, std::abs(want.values[i])));
    }
  }
}

inline void check_cases(const std::vector<OpCase>& cases) {
  for (const OpCase& c : cases) {
    SCOPED_TRACE(c.name);
    const auto results = run_op(c.name, c.args, c.expected);
    ASSERT_TRUE(results) << results.error().message;
    for (size_t i = 0; i < c.expected.size(); ++i) {
      expect_close((*results)[i], c.expected[i], c.tolerance);
    }
  }
}

// The operator must be refused with a message that contains the text.
struct RefusedCase {
  std::string name;
  std::vector<Arg> args;
  std::vector<Values> outs;
  std::string message;
};

inline void check_refused(const std::vector<RefusedCase>& cases) {
  for (const RefusedCase& c : cases) {
    SCOPED_TRACE(c.name + ": " + c.message);
    const std::string message = op_error(c.name, c.args, c.outs);
    EXPECT_NE(message.find(c.message), std::string::npos) << "got: " << message;
    EXPECT_TRUE(message.starts_with("test.pte: ")) << message;
  }
}

}  // namespace ferry::runner
