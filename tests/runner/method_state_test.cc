// State that a method keeps between executions, and that reset() restores.
#include <gtest/gtest.h>

#include <cmath>

#include "runner/method.h"
#include "tests/runner/method_testing.h"
#include "tests/runner/op_runner.h"

namespace ferry::runner::method_test {
namespace {

TEST(MethodState, IsKeptBetweenExecutionsAndReset) {
  Accumulator accumulator(true);
  Method method = *accumulator.program.load();
  EXPECT_EQ(accumulator.step(method, 1, 2), (std::vector<double>{11, 22}));
  EXPECT_EQ(accumulator.step(method, 1, 2), (std::vector<double>{12, 24}));
  EXPECT_EQ(decode(*method.value(accumulator.total)).values, (std::vector<double>{12, 24}));
  method.reset();
  EXPECT_EQ(decode(*method.value(accumulator.total)).values, (std::vector<double>{10, 20}));
  EXPECT_EQ(accumulator.step(method, 0, 0), (std::vector<double>{10, 20}));
}

TEST(MethodState, NumbersThatAProgramWritesStartAgain) {
  ProgramBuilder program;
  const int32_t x = program.planned(DType::kF32, {2, 16});
  const int32_t dim = program.add(int64_t{1});  // the instruction reads it and writes it
  program.method().inputs = {x};
  program.method().outputs = {dim};
  program.call("aten::sym_size.int", {x, dim, dim});
  Method method = *program.load();
  const Given given(f32({2, 16}, std::vector<double>(32)));
  for (int run = 0; run < 3; ++run) {
    ASSERT_TRUE(method.set_input(0, given.view()));
    const Status done = method.execute();
    ASSERT_TRUE(done) << done.error().message;
    EXPECT_EQ(decode(method.output(0)).values, std::vector<double>{16});
  }
}

TEST(MethodState, ANumberThatIsGivenStaysWhateverTheProgramWrites) {
  ProgramBuilder program;
  const int32_t count = program.add(int64_t{5});
  program.method().inputs = program.method().outputs = {count};
  program.call("executorch_prim::add.Scalar", {count, program.add(int64_t{1}), count});
  Method method = *program.load();
  const auto run = [&] {
    EXPECT_TRUE(method.execute());
    return decode(method.output(0)).values[0];
  };
  EXPECT_EQ(run(), 6);
  EXPECT_EQ(run(), 6);
  const Given given(i64({}, {40}));
  ASSERT_TRUE(method.set_input(0, given.view()));
  EXPECT_EQ(run(), 41);
  method.reset();
  EXPECT_EQ(run(), 41);
}

// A jump skips the instruction that writes the value which the next instruction reads.
TEST(MethodState, ResetAlsoReachesWhatOnlySomeExecutionsWrite) {
  ProgramBuilder program;
  const int32_t x = program.planned(DType::kF32, {2});
  const int32_t writes = program.add(true);
  const int32_t kept = program.planned(DType::kF32, {2});
  const int32_t out = program.planned(DType::kF32, {2});
  program.method().inputs = {x, writes};
  program.method().outputs = {out};
  program.method().instructions.push_back(pte::JumpFalseCall{writes, 2});
  program.call("aten::neg.out", {x, kept});
  program.call("aten::neg.out", {kept, out});
  Method method = *program.load();
  const auto run = [&](bool write) {
    const Given given(f32({2}, {3, 4})), flag(boolean({}, {write ? 1.0 : 0.0}));
    EXPECT_TRUE(method.set_input(0, given.view()));
    EXPECT_TRUE(method.set_input(1, flag.view()));
    EXPECT_TRUE(method.execute());
    return decode(method.output(0)).values;
  };
  const std::vector<double> first = run(false);
  EXPECT_EQ(run(true), (std::vector<double>{3, 4}));
  method.reset();
  EXPECT_EQ(run(false), first);
}

TEST(MethodState, WithoutContentsStartsFromZero) {
  Accumulator accumulator(false);
  Method method = *accumulator.program.load();
  EXPECT_EQ(accumulator.step(method, 1, 2), (std::vector<double>{1, 2}));
  method.reset();
  EXPECT_EQ(accumulator.step(method, 3, 4), (std::vector<double>{3, 4}));
}

TEST(MethodState, PoisonReachesWhatHasNoContents) {
  Accumulator zeros(false);
  Method poisoned = *zeros.program.load({.poison = true});
  EXPECT_TRUE(std::isnan(zeros.step(poisoned, 1, 2)[0]));
  Accumulator stored(true);
  Method method = *stored.program.load({.poison = true});
  EXPECT_EQ(stored.step(method, 1, 2), (std::vector<double>{11, 22}));
}

}  // namespace
}  // namespace ferry::runner::method_test
