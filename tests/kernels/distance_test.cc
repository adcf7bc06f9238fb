// Distances between rows, by hand.
#include <limits>

#include "tests/runner/op_cases.h"

namespace ferry::runner::distance_test {
namespace {

const std::string kName = "aten::_cdist_forward.out";
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Values rows() { return f32({2, 2}, {0, 0, 1, -2}); }
Values others() { return f32({3, 2}, {3, 4, 1, -2, 0, 0}); }

TEST(Distance, HasTheNormThatIsAskedFor) {
  check_cases({
      {kName,
       {rows(), others(), 2.0, NoValue{}},
       {f32({2, 3}, {5, std::sqrt(5.0), 0, std::sqrt(40.0), 0, std::sqrt(5.0)})}},
      {kName, {rows(), others(), 1.0, integer(0)}, {f32({2, 3}, {7, 3, 0, 8, 0, 3})}},
      {kName, {rows(), others(), 0.0, integer(2)}, {f32({2, 3}, {2, 2, 0, 2, 0, 2})}},
      {kName, {rows(), others(), kInfinity, NoValue{}}, {f32({2, 3}, {4, 2, 0, 6, 0, 2})}},
      {kName,
       {rows(), others(), 3.0, NoValue{}},
       {f32({2, 3}, {std::cbrt(91.0), std::cbrt(9.0), 0, std::cbrt(224.0), 0, std::cbrt(9.0)})}},
      {"aten::_pdist_forward.out", {others(), 1.0}, {f32({3}, {8, 7, 3})}},
      {"aten::_pdist_forward.out", {f32({1, 2}, {1, 2}), 2.0}, {f32({0}, {})}},
  });
}

TEST(Distance, BatchesBroadcast) {
  const Values left = f32({2, 1, 1, 1}, {1, 10});
  const Values right = f32({3, 2, 1}, {0, 1, 2, 3, 4, 5});
  check_cases({{kName,
                {left, right, 2.0, NoValue{}},
                {f32({2, 3, 1, 2}, {1, 0, 1, 2, 3, 4, 10, 9, 8, 7, 6, 5})}}});
  check_cases({{kName,
                {f32({2, 0}, {}), f32({3, 0}, {}), 2.0, NoValue{}},
                {f32({2, 3}, {0, 0, 0, 0, 0, 0})}}});
}

TEST(Distance, RowsThatDoNotFitAreRefused) {
  const Values out = f32({2, 3}, {});
  check_refused({
      {kName, {rows(), f32({3, 1}, {1, 2, 3}), 2.0, NoValue{}}, {out}, "no rows of one length"},
      {kName, {f32({2}, {1, 2}), others(), 2.0, NoValue{}}, {out}, "no rows of one length"},
      {kName, {rows(), others(), -1.0, NoValue{}}, {out}, "the norm -1"},
      {kName, {rows(), others(), 2.0, integer(3)}, {out}, "compute mode 3"},
      {kName, {rows(), others(), 2.0, NoValue{}}, {f32({3, 2}, {})}, "cannot take"},
      {kName,
       {f32({2, 1, 1}, {1, 2}), f32({3, 1, 1}, {1, 2, 3}), 2.0, NoValue{}},
       {f32({3, 1, 1}, {})},
       "broadcast"},
      {"aten::_pdist_forward.out", {f32({2}, {1, 2}), 2.0}, {f32({1}, {})}, "rank"},
      {"aten::_pdist_forward.out",
       {others(), std::numeric_limits<double>::quiet_NaN()},
       {f32({3}, {})},
       "the norm"},
  });
}

}  // namespace
}  // namespace ferry::runner::distance_test
