// Operators on scalars: sizes, positions, conditions.
#include <limits>

#include "tests/runner/op_cases.h"

namespace ferry::runner::scalars_test {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// Returns the result of a scalar operator whose out is declared like `declared`.
Result<Values> run_scalar(const std::string& name, const std::vector<Arg>& args,
                          const Arg& declared) {
  ProgramBuilder program;
  std::vector<int32_t> ids;
  for (const Arg& arg : args) ids.push_back(program.argument(arg));
  ids.push_back(program.argument(declared));
  program.method().outputs = {ids.back()};
  program.call(name, ids);
  Method method = FERRY_TRY(program.load());
  FERRY_RETURN_IF_ERROR(method.execute());
  return decode(method.output(0));
}

struct ScalarCase {
  std::string name;
  std::vector<Arg> args;
  Arg expected;
};

TEST(Scalars, FollowPython) {
  const std::vector<ScalarCase> cases = {
      {"add.Scalar", {integer(2), integer(3)}, integer(5)},
      {"sub.Scalar", {integer(2), integer(3)}, integer(-1)},
      {"mul.Scalar", {integer(-2), integer(3)}, integer(-6)},
      {"add.Scalar", {0.5, integer(3)}, 3.5},
      {"truediv.Scalar", {integer(1), integer(2)}, 0.5},
      {"floordiv.Scalar", {integer(-7), integer(2)}, integer(-4)},
      {"floordiv.int", {integer(7), integer(-2)}, integer(-4)},
      {"floordiv.Scalar", {-7.0, integer(2)}, -4.0},
      {"mod.Scalar", {integer(-7), integer(4)}, integer(1)},
      {"mod.int", {integer(7), integer(-4)}, integer(-1)},
      {"mod.int", {integer(kMin), integer(-1)}, integer(0)},
      {"sym_max.Scalar", {integer(2), integer(-3)}, integer(2)},
      {"sym_min.Scalar", {integer(2), integer(-3)}, integer(-3)},
      {"eq.Scalar", {integer(2), integer(2)}, true},
      {"lt.Scalar", {integer(2), integer(2)}, false},
      {"le.Scalar", {integer(2), 2.5}, true},
      {"gt.Scalar", {integer(kMax), integer(kMax - 1)}, true},
      {"ge.Scalar", {integer(1), integer(2)}, false},
      {"neg.Scalar", {integer(4)}, integer(-4)},
      {"sym_not.Scalar", {true}, false},
      {"sym_float.Scalar", {integer(4)}, 4.0},
      {"sym_int.Scalar", {-2.9}, integer(-2)},
      {"trunc.Scalar", {2.9}, integer(2)},
      {"ceil.Scalar", {2.1}, integer(3)},
      {"round.Scalar", {2.5}, integer(2)},
      {"sym_ite.Scalar", {true, integer(1), integer(2)}, integer(1)},
      {"sym_ite.Scalar", {false, integer(1), integer(2)}, integer(2)},
  };
  for (const ScalarCase& c : cases) {
    SCOPED_TRACE(c.name);
    // The out starts as another value of the expected kind.
    Arg declared = integer(99);
    double want = 0;
    if (const auto* v = std::get_if<int64_t>(&c.expected)) want = static_cast<double>(*v);
    if (const auto* v = std::get_if<double>(&c.expected)) declared = 99.0, want = *v;
    if (const auto* v = std::get_if<bool>(&c.expected)) declared = !*v, want = *v ? 1 : 0;
    const auto got = run_scalar("executorch_prim::" + c.name, c.args, declared);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(got->shape, Shape());
    EXPECT_EQ(got->values, std::vector<double>{want});
  }
}

TEST(Scalars, WhatHasNoResultIsRefused) {
  struct Row {
    std::string name;
    std::vector<Arg> args;
    Arg declared;
    std::string message;
  };
  for (const Row& row : std::vector<Row>{
           {"floordiv.Scalar", {integer(1), integer(0)}, integer(0), "division by zero"},
           {"mod.int", {integer(1), integer(0)}, integer(0), "division by zero"},
           {"truediv.Scalar", {integer(1), integer(0)}, 0.0, "division by zero"},
           {"add.Scalar", {integer(kMax), integer(1)}, integer(0), "overflows"},
           {"sub.Scalar", {integer(kMin), integer(1)}, integer(0), "overflows"},
           {"mul.Scalar", {integer(kMax), integer(2)}, integer(0), "overflows"},
           {"neg.Scalar", {integer(kMin)}, integer(0), "overflows"},
           {"floordiv.int", {integer(kMin), integer(-1)}, integer(0), "overflows"},
           {"sym_int.Scalar", {std::nan("")}, integer(0), "not an integer"},
           {"sym_int.Scalar", {1e19}, integer(0), "not an integer"},
           {"truediv.Scalar", {integer(1), integer(2)}, integer(0), "cannot hold"},
           {"add.Scalar", {integer(1), integer(2)}, true, "cannot hold"},
       }) {
    SCOPED_TRACE(row.name + " " + row.message);
    const auto got = run_scalar("executorch_prim::" + row.name, row.args, row.declared);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code, ErrorCode::kBadInput);
    EXPECT_NE(got.error().message.find(row.message), std::string::npos) << got.error().message;
  }
}

TEST(Scalars, OfTensors) {
  const Values t = f32({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(run_scalar("aten::sym_size.int", {t, integer(-1)}, integer(0))->values[0], 3);
  EXPECT_EQ(run_scalar("aten::sym_numel", {t}, integer(0))->values[0], 6);
  EXPECT_EQ(run_scalar("aten::_local_scalar_dense", {i64({}, {7})}, integer(0))->values[0], 7);
  EXPECT_EQ(run_scalar("aten::_local_scalar_dense", {f32({1}, {0.5})}, 0.0)->values[0], 0.5);
  EXPECT_EQ(run_scalar("aten::_local_scalar_dense", {boolean({1}, {1})}, false)->values[0], 1);
  EXPECT_FALSE(run_scalar("aten::_local_scalar_dense", {t}, 0.0));
  EXPECT_FALSE(run_scalar("aten::_local_scalar_dense", {f32({}, {1})}, integer(0)));
  EXPECT_FALSE(run_scalar("aten::sym_size.int", {t, integer(2)}, integer(0)));
  EXPECT_FALSE(run_scalar("aten::sym_size.int", {f32({}, {1}), integer(0)}, integer(0)));
}

}  // namespace
}  // namespace ferry::runner::scalars_test
