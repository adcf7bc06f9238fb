// Methods: placement of values in memory, and memory that must not be written.
#include <gtest/gtest.h>

#include "runner/memory.h"
#include "runner/method.h"
#include "tests/runner/method_testing.h"

namespace ferry::runner::method_memory_test {
namespace {

TEST(MethodMemory, ConstantsAndLentInputsCannotBeWritten) {
  ProgramBuilder program;
  const int32_t constant = program.constant(f32({2}, {1, 2}));
  program.call("aten::neg.out", {program.constant(f32({2}, {3, 4})), constant});
  Method method = *program.load();
  expect_error(method.execute(), ErrorCode::kBadInput, "cannot be written");

  ProgramBuilder lent;
  const int32_t x = lent.unplanned(DType::kF32, {2});
  lent.method().inputs = {x};
  lent.call("aten::neg.out", {lent.constant(f32({2}, {3, 4})), x});
  expect_load_error(lent, ErrorCode::kBadInput, "is an input");
}

TEST(MethodMemory, OutsMustNotLieOverInputs) {
  const auto run = [](const std::string& name, uint64_t shift) {
    ProgramBuilder program;
    const int32_t in = program.initialised(f32({4}, {1, 2, 3, 4}));
    const int32_t out = program.planned(DType::kF32, {4});
    program.tensor(out).allocation->offset = shift;
    program.method().outputs = {out};
    if (name == "aten::neg.out") program.call(name, {in, out});
    if (name == "aten::cumsum.out") {
      program.call(name, {in, program.add(int64_t{0}), program.add(pte::None{}), out});
    }
    Method method = *program.load();
    const Status status = method.execute();
    return status ? decode(method.output(0)).values : std::vector<double>();
  };
  EXPECT_EQ(run("aten::neg.out", 0), (std::vector<double>{-1, -2, -3, -4}));
  EXPECT_EQ(run("aten::neg.out", 4), std::vector<double>());
  EXPECT_EQ(run("aten::cumsum.out", 0), std::vector<double>());
  EXPECT_EQ(run("aten::cumsum.out", 64), (std::vector<double>{1, 3, 6, 10}));
}

TEST(MethodMemory, AnInputThatIsBroadcastOverItselfIsRefused) {
  ProgramBuilder program;
  const int32_t row = program.initialised(f32({1, 2}, {1, 2}));
  const int32_t out = program.planned(DType::kF32, {3, 2});
  program.tensor(out).allocation->offset = 0;
  program.call("aten::add.out",
               {row, program.constant(f32({3, 1}, {1, 2, 3})), program.add(int64_t{1}), out});
  Method method = *program.load();
  expect_error(method.execute(), ErrorCode::kBadInput, "lies over input");
}

TEST(MethodMemory, PlansThatCannotBeAreRefused) {
  ProgramBuilder outside;
  outside.planned(DType::kF32, {2});
  outside.method().memory_bytes[1] = 4;
  expect_load_error(outside, ErrorCode::kBadInput, "outside of planned memory");

  ProgramBuilder wraps;
  wraps.tensor(wraps.planned(DType::kF32, {2})).allocation->offset = UINT64_MAX - 4;
  expect_load_error(wraps, ErrorCode::kBadInput, "outside of planned memory");

  ProgramBuilder odd;
  odd.tensor(odd.planned(DType::kF32, {2})).allocation->offset = 2;
  expect_load_error(odd, ErrorCode::kBadInput, "not aligned");

  ProgramBuilder all;
  all.method().memory_bytes = {0, uint64_t{1} << 60};
  expect_load_error(all, ErrorCode::kIo, "are available");

  ProgramBuilder huge;
  huge.method().memory_bytes = {0, UINT64_MAX, UINT64_MAX};
  expect_load_error(huge, ErrorCode::kIo, "planned memory of 18446744073709551615 bytes exceeds");

  ProgramBuilder wide;
  wide.tensor(wide.planned(DType::kF32, {1})).sizes = {1 << 30, 1 << 30, 1 << 30, 0};
  wide.tensor(0).dim_order = {0, 1, 2, 3};
  expect_load_error(wide, ErrorCode::kBadInput, "overflows");
}

TEST(MethodMemory, ConstantsAtAnyAddress) {
  std::vector<std::byte> bytes = encode(f32({2}, {1, 2}));
  bytes.insert(bytes.begin(), std::byte{0});
  ProgramBuilder program;
  const int32_t constant = program.constant(f32({2}, {0, 0}));
  program.loaded().data.constants[1] = std::span(bytes).subspan(1);
  const int32_t out = program.planned(DType::kF32, {2});
  program.method().outputs = {out};
  program.call("aten::neg.out", {constant, out});
  Method method = *program.load();
  ASSERT_TRUE(method.execute());
  EXPECT_EQ(decode(method.output(0)).values, (std::vector<double>{-1, -2}));
}

}  // namespace
}  // namespace ferry::runner::method_memory_test
