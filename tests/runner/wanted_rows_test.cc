// Rows of an output that nobody reads are not computed, and the others have the bits that they have
// among all rows.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/runner/op_runner.h"

namespace ferry::runner {
namespace {

constexpr int64_t kRows = 14, kColumns = 3, kDepth = 5;

Values waves(const Shape& shape, int64_t n) {
  Values values = f32(shape, {});
  for (int64_t i = 0; i < n; ++i) values.values.push_back(std::sin(static_cast<double>(i)));
  return values;
}

// -x times a matrix: as f32, or as codes of it.
struct Head {
  explicit Head(bool coded) {
    const int32_t input = program.unplanned(DType::kF32, {1, kRows, kDepth});
    const int32_t x = program.planned(DType::kF32, {1, kRows, kDepth});
    product = program.planned(DType::kF32, {1, kRows, kColumns});
    program.method().inputs = {input};
    program.method().outputs = {product};
    program.call("aten::neg.out", {input, x});
    program.call("aten::linear.out",
                 {x, program.constant(waves({kColumns, kDepth}, kColumns * kDepth)),
                  program.add(pte::None{}), product});
    if (!coded) return;
    const int32_t codes = program.planned(DType::kU8, {1, kRows, kColumns});
    program.call("quantized_decomposed::quantize_per_tensor.out",
                 {product, program.add(0.03), program.add(int64_t{120}), program.add(int64_t{0}),
                  program.add(int64_t{255}),
                  program.add(int64_t{dtype_info(DType::kU8).executorch}), codes});
    program.method().outputs = {codes};
  }

  std::vector<double> run(Method& method) const {
    const Values x = waves({1, kRows, kDepth}, kRows * kDepth);
    const std::vector<std::byte> bytes = encode(x);
    EXPECT_TRUE(method.set_input(0, {x.dtype, x.shape, bytes}));
    const Status status = method.execute();
    EXPECT_TRUE(status) << status.error().message;
    EXPECT_EQ(method.output(0).shape, (Shape{1, kRows, kColumns}));
    return decode(method.output(0)).values;
  }

  ProgramBuilder program;
  int32_t product = 0;
};

bool is_poison(double value, bool coded) { return coded ? value == 255 : std::isnan(value); }

TEST(WantedRows, AreThoseOfAllRows) {
  for (const bool coded : {false, true}) {
    SCOPED_TRACE(coded);
    Head head(coded);
    Method all = *head.program.load({.poison = true});
    const std::vector<double> expected = head.run(all);
    for (const auto& [begin, count] :
         {std::pair<int64_t, int64_t>{13, 1}, {0, 1}, {3, 4}, {5, 0}}) {
      Method method = *head.program.load({.poison = true});
      method.want_rows(0, begin, count);
      for (int call = 0; call < 2; ++call) {
        const std::vector<double> rows = head.run(method);
        for (int64_t i = 0; i < kRows * kColumns; ++i) {
          const bool wanted = i >= begin * kColumns && i < (begin + count) * kColumns;
          const auto at = static_cast<size_t>(i);
          EXPECT_TRUE(wanted ? rows[at] == expected[at] : is_poison(rows[at], coded)) << i;
        }
      }
      method.want_rows(0, 0, kRows);
      EXPECT_EQ(head.run(method), expected);
    }
  }
}

TEST(WantedRows, AreAllRowsForAnObserverAndInProgramsAsStated) {
  for (const bool literal : {false, true}) {
    Head head(true);
    Method method = *head.program.load({.poison = true, .literal = literal});
    const std::vector<double> expected = head.run(method);
    Method other = *head.program.load({.poison = true, .literal = literal});
    other.want_rows(0, 1, 1);
    if (!literal) {
      EXPECT_TRUE(other.observe(head.product, [](const TensorView&) {}));
      other.want_rows(0, 1, 1);
    }
    EXPECT_EQ(head.run(other), expected);
  }
}

}  // namespace
}  // namespace ferry::runner
