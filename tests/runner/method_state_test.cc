// State that a method keeps between executions, that reset() restores, and that the methods of a
// program share.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "runner/memory.h"
#include "runner/method.h"
#include "tests/runner/method_testing.h"
#include "tests/runner/op_runner.h"

namespace ferry::runner::method_state_test {
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

// -- several methods of one program

struct TwoMethods {
  ProgramBuilder program;
  std::vector<std::byte> initial = encode(f32({2}, {7, 8}));
  ThreadPool pool{1};
  MemoryBudget budget{std::nullopt};

  TwoMethods() {
    program.loaded().data.initial.push_back(initial);
    const int32_t state = planned_state();
    const int32_t given = program.unplanned(DType::kF32, {2});
    program.method().inputs = {given};
    program.call("aten::copy_", {state, given, program.add(false)});
    program.method().name = "put";
    pte::Method put = program.method();
    program.method() = pte::Method();
    program.method().name = "get";
    program.method().memory_bytes = {0, 64};
    const int32_t read = planned_state();
    const int32_t out = program.planned(DType::kF32, {2});
    program.method().outputs = {out};
    program.call("aten::neg.out", {read, out});
    program.loaded().program.methods.push_back(std::move(put));
  }

  int32_t planned_state() {
    pte::Tensor tensor;
    tensor.dtype = DType::kF32;
    tensor.sizes = {2};
    tensor.dim_order = {0};
    tensor.fqn = "state";
    tensor.data_index = 1;
    tensor.allocation = {1, 0};
    program.method().memory_bytes[1] = std::max<uint64_t>(program.method().memory_bytes[1], 64);
    return program.add(std::move(tensor));
  }

  Result<std::vector<Method>> load() {
    const std::string_view names[] = {"put", "get"};
    return Method::load_all(program.loaded(), names, {}, pool, {}, budget, "two.pte");
  }
};

TEST(MethodSharing, MethodsOfAProgramHaveOneState) {
  TwoMethods two;
  std::vector<Method> methods = *two.load();
  Method& put = methods[0];
  Method& get = methods[1];
  ASSERT_TRUE(get.execute());
  EXPECT_EQ(decode(get.output(0)).values, (std::vector<double>{-7, -8}));
  const Given given(f32({2}, {1, 2}));
  ASSERT_TRUE(put.set_input(0, given.view()));
  ASSERT_TRUE(put.execute());
  ASSERT_TRUE(get.execute());
  EXPECT_EQ(decode(get.output(0)).values, (std::vector<double>{-1, -2}));
  put.reset();
  ASSERT_TRUE(get.execute());
  EXPECT_EQ(decode(get.output(0)).values, (std::vector<double>{-7, -8}));
}

TEST(MethodSharing, MemoryIsThatOfTheLargestMethod) {
  TwoMethods two;
  two.budget = MemoryBudget(128);  // `get` needs 128 bytes and `put` 64
  EXPECT_TRUE(two.load());
  two.budget = MemoryBudget(127);
  const auto refused = two.load();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kIo);
  EXPECT_EQ(refused.error().message,
            "two.pte: planned memory of 128 bytes exceeds the 127 bytes that memory allows");
}

}  // namespace
}  // namespace ferry::runner::method_state_test
