// Methods: inputs and outputs, memory, control flow, and invalid programs.
#include "runner/method.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/kernel_table.h"
#include "runner/memory.h"
#include "tests/runner/method_testing.h"
#include "tests/runner/op_runner.h"

namespace ferry::runner::method_test {
namespace {

constexpr pte::Dynamism kDynamic = pte::Dynamism::kDynamicBound;

TEST(MethodInputs, DynamicSizesUpToTheBound) {
  ProgramBuilder program;
  const int32_t x = program.unplanned(DType::kF32, {1, 4}, kDynamic);
  const int32_t out = program.planned(DType::kF32, {1, 4}, kDynamic);
  program.method().inputs = {x};
  program.method().outputs = {out};
  program.call("aten::neg.out", {x, out});
  Method method = *program.load();
  EXPECT_EQ(method.input_meta(0).shape, (Shape{1, 4}));
  EXPECT_EQ(method.output_meta(0).shape, (Shape{1, 4}));
  for (const int64_t length : {3, 1, 4, 0, 2}) {
    const Given input(f32({1, length}, std::vector<double>(static_cast<size_t>(length), 5)));
    ASSERT_TRUE(method.set_input(0, input.view()));
    const Status status = method.execute();
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(method.output(0).shape, (Shape{1, length}));
    EXPECT_EQ(decode(method.output(0)).values,
              std::vector<double>(static_cast<size_t>(length), -5));
    EXPECT_EQ(method.output_meta(0).shape, (Shape{1, 4}));
  }
}

TEST(MethodInputs, ThatDoNotFitAreRefusedByIndex) {
  ProgramBuilder program;
  const int32_t x = program.unplanned(DType::kF32, {1, 4}, kDynamic);
  const int32_t y = program.planned(DType::kI64, {2});
  program.method().inputs = {x, y};
  Method method = *program.load();
  const auto refuse = [&](size_t index, const Values& values, const std::string& message) {
    const Given given(values);
    expect_error(method.set_input(index, given.view()), ErrorCode::kBadInput, message);
  };
  refuse(0, f32({1, 5}, {1, 2, 3, 4, 5}), "input 0: f32[1, 5] does not fit at most f32[1, 4]");
  refuse(0, f32({4}, {1, 2, 3, 4}), "input 0");
  refuse(0, i64({1, 1}, {1}), "input 0: i64[1, 1]");
  refuse(1, i64({1}, {1}), "input 1: i64[1] does not fit i64[2]");
  refuse(2, i64({1}, {1}), "input 2: there are 2");
  Given lying(f32({1, 2}, {1, 2}));
  lying.values.shape = {1, 3};
  expect_error(method.set_input(0, lying.view()), ErrorCode::kBadInput, "8 bytes of data");
  lying.values.shape = {1, -1};
  expect_error(method.set_input(0, lying.view()), ErrorCode::kBadInput, "does not fit");
  expect_error(method.execute(), ErrorCode::kBadInput, "input 0: is not set");
}

TEST(MethodInputs, MustBeSetForEveryExecution) {
  Accumulator accumulator(true);
  Method method = *accumulator.program.load();
  accumulator.step(method, 1, 1);
  expect_error(method.execute(), ErrorCode::kBadInput, "input 0: is not set");
}

TEST(MethodInputs, AtAnyAddress) {
  Accumulator accumulator(true);
  Method method = *accumulator.program.load();
  std::vector<std::byte> bytes = encode(f32({2}, {1, 2}));
  bytes.insert(bytes.begin(), std::byte{0});
  ASSERT_TRUE(method.set_input(0, {DType::kF32, {2}, std::span(bytes).subspan(1)}));
  ASSERT_TRUE(method.execute());
  EXPECT_EQ(decode(method.output(0)).values, (std::vector<double>{11, 22}));
}

TEST(MethodInputs, NumbersKeepTheirStoredValueUntilSet) {
  ProgramBuilder program;
  const int32_t n = program.add(int64_t{3});
  const int32_t out = program.planned(DType::kI64, {8}, kDynamic);
  program.method().inputs = {n};
  program.method().outputs = {out, n};
  program.call("aten::arange.out", {n, out});
  Method method = *program.load();
  EXPECT_EQ(method.input_meta(0).dtype, DType::kI64);
  EXPECT_EQ(method.input_meta(0).shape, Shape());
  ASSERT_TRUE(method.execute());
  EXPECT_EQ(method.output(0).shape, Shape{3});
  ASSERT_TRUE(method.set_input(0, Given(i64({}, {5})).view()));
  ASSERT_TRUE(method.execute());
  EXPECT_EQ(method.output(0).shape, Shape{5});
  EXPECT_EQ(decode(method.output(1)).values, std::vector<double>{5});
  ASSERT_TRUE(method.set_input(0, Given(i64({}, {9})).view()));
  expect_error(method.execute(), ErrorCode::kBadInput, "instruction 0 (aten::arange.out)");
}

TEST(MethodOutputs, WithoutPlannedMemoryGetSome) {
  ProgramBuilder program;
  const int32_t out = program.unplanned(DType::kF32, {2});
  program.method().outputs = {out};
  program.call("aten::neg.out", {program.constant(f32({2}, {1, 2})), out});
  Method method = *program.load();
  ASSERT_TRUE(method.execute());
  EXPECT_EQ(decode(method.output(0)).values, (std::vector<double>{-1, -2}));
}

TEST(MethodViews, ShareMemoryAndForgetItBetweenExecutions) {
  ProgramBuilder program;
  const int32_t x = program.unplanned(DType::kF32, {4});
  const int32_t view = program.unplanned(DType::kF32, {2, 2});
  const int32_t early = program.planned(DType::kF32, {2, 2});
  program.method().inputs = {x};
  program.method().outputs = {view};
  program.call("executorch_prim::et_view.default", {x, program.int_list({2, -1}), view});
  Method method = *program.load();
  const Given given(f32({4}, {1, 2, 3, 4}));
  ASSERT_TRUE(method.set_input(0, given.view()));
  ASSERT_TRUE(method.execute());
  EXPECT_EQ(method.output(0).bytes.data(), given.bytes.data());
  EXPECT_EQ(method.output(0).shape, (Shape{2, 2}));

  // A program that uses a view before it makes it would see the memory of the last execution.
  program.call("aten::neg.out", {view, early});
  std::swap(program.method().instructions[0], program.method().instructions[1]);
  Method hostile = *program.load();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(hostile.set_input(0, given.view()));
    expect_error(hostile.execute(), ErrorCode::kBadInput, "is used before it is set");
  }
}

TEST(MethodViews, OfConstantsCannotBeWritten) {
  ProgramBuilder program;
  const int32_t constant = program.constant(f32({2}, {1, 2}));
  const int32_t view = program.unplanned(DType::kF32, {2, 1});
  program.call("executorch_prim::et_view.default", {constant, program.int_list({2, 1}), view});
  program.call("aten::copy_", {view, program.constant(f32({2, 1}, {3, 4})), program.add(false)});
  Method method = *program.load();
  expect_error(method.execute(), ErrorCode::kBadInput, "instruction 1 (aten::copy_): value 1");
}

TEST(MethodViews, SelectingFromAConstantCopiesNothing) {
  ProgramBuilder program;
  const int32_t constant = program.constant(f32({3, 2}, {0, 1, 2, 3, 4, 5}));
  const int32_t index = program.add(int64_t{0});
  const int32_t selected = program.planned(DType::kF32, {2});
  const int32_t out = program.planned(DType::kF32, {2});
  program.method().inputs = {index};
  program.method().outputs = {out};
  program.call("aten::select_copy.int_out", {constant, program.add(int64_t{0}), index, selected});
  program.call("aten::neg.out", {selected, out});
  Method method = *program.load();
  for (const int64_t i : {2, 0, 1, -1}) {
    const Given given(i64({}, {static_cast<double>(i)}));
    ASSERT_TRUE(method.set_input(0, given.view()));
    ASSERT_TRUE(method.execute());
    const double row = static_cast<double>(2 * (i < 0 ? i + 3 : i));
    EXPECT_EQ(decode(method.output(0)).values, (std::vector<double>{-row, -row - 1}));
    EXPECT_EQ(method.value(selected)->bytes.data(),
              program.loaded().data.constants[1].data() + 4 * static_cast<int64_t>(row));
  }
  const Given outside(i64({}, {3}));
  ASSERT_TRUE(method.set_input(0, outside.view()));
  expect_error(method.execute(), ErrorCode::kBadInput, "instruction 0 (aten::select_copy.int_out)");
}

TEST(MethodViews, WhatIsSelectedIsCopiedWhereThatCouldBeTold) {
  enum class Use { kOutput, kWritten, kViewed, kOtherDimension };
  for (const Use use : {Use::kOutput, Use::kWritten, Use::kViewed, Use::kOtherDimension}) {
    SCOPED_TRACE(static_cast<int>(use));
    ProgramBuilder program;
    const int32_t constant = program.constant(f32({2, 2}, {0, 1, 2, 3}));
    const int32_t selected = program.planned(DType::kF32, {2});
    const int32_t seven = program.constant(f32({2}, {7, 7}));
    const int64_t dim = use == Use::kOtherDimension ? 1 : 0;
    program.call("aten::select_copy.int_out",
                 {constant, program.add(dim), program.add(int64_t{1}), selected});
    if (use == Use::kOutput) program.method().outputs = {selected};
    if (use == Use::kWritten) {
      program.call("aten::copy_", {selected, seven, program.add(false)});
    }
    if (use == Use::kViewed) {
      const int32_t view = program.planned(DType::kF32, {2, 1});
      program.tensor(view).allocation = program.tensor(selected).allocation;
      program.call("executorch_prim::et_view.default", {selected, program.int_list({2, 1}), view});
      program.call("aten::copy_",
                   {view, program.constant(f32({2, 1}, {7, 7})), program.add(false)});
    }
    Method method = *program.load();
    const Status status = method.execute();
    ASSERT_TRUE(status) << status.error().message;
    const double first = use == Use::kOutput ? 2 : use == Use::kOtherDimension ? 1 : 7;
    const double second = use == Use::kWritten || use == Use::kViewed ? 7 : 3;
    EXPECT_EQ(decode(*method.value(selected)).values, (std::vector<double>{first, second}));
    EXPECT_EQ(decode(*method.value(constant)).values, (std::vector<double>{0, 1, 2, 3}));
  }
}

struct ExternalProgram {
  ExternalProgram() {
    const int32_t weight = program.unplanned(DType::kF32, {2});
    program.tensor(weight).external = true;
    program.tensor(weight).fqn = "layer.weight";
    const int32_t out = program.planned(DType::kF32, {2});
    program.method().outputs = {out};
    program.call("aten::neg.out", {weight, out});
  }
  ProgramBuilder program;
  std::vector<std::byte> bytes = encode(f32({2}, {1, 2}));
  std::vector<int32_t> sizes = {2};
};

TEST(MethodExternal, TensorsAreFoundByName) {
  ExternalProgram p;
  Method method = *p.program.load({}, {{"other", DType::kF32, p.sizes, p.bytes},
                                       {"layer.weight", DType::kF32, p.sizes, p.bytes}});
  ASSERT_TRUE(method.execute());
  EXPECT_EQ(decode(method.output(0)).values, (std::vector<double>{-1, -2}));
}

TEST(MethodExternal, AbsentOrDifferentTensorsAreRefused) {
  ExternalProgram p;
  const std::vector<int32_t> other_sizes = {1, 2};
  const auto refuse = [&](std::vector<ExternalTensor> external, const std::string& message) {
    const auto method = p.program.load({}, external);
    ASSERT_FALSE(method);
    EXPECT_EQ(method.error().code, ErrorCode::kBadInput);
    EXPECT_NE(method.error().message.find(message), std::string::npos) << method.error().message;
  };
  refuse({}, "1 external tensors are absent from the data files, first 'layer.weight'");
  refuse({{"layer.weight", DType::kF16, p.sizes, p.bytes}}, "is f16[2] in the data and f32[2]");
  refuse({{"layer.weight", DType::kF32, other_sizes, p.bytes}}, "is f32[1, 2] in the data");
  refuse({{"layer.weight", DType::kF32, p.sizes, std::span(p.bytes).first(4)}}, "'layer.weight'");
}

// i = 0; do { i = i + 1; done = i >= limit } while (!done)
void add_loop(ProgramBuilder& program, int64_t limit) {
  const int32_t i = program.add(int64_t{0});
  const int32_t done = program.add(false);
  program.method().outputs = {i};
  program.call("executorch_prim::sub.Scalar", {i, i, i});
  program.call("executorch_prim::add.Scalar", {i, program.add(int64_t{1}), i});
  program.call("executorch_prim::ge.Scalar", {i, program.add(limit), done});
  program.method().instructions.push_back(pte::JumpFalseCall{done, 1});
}

TEST(MethodControl, LoopsEnd) {
  ProgramBuilder program;
  add_loop(program, 1000);
  Method method = *program.load();
  for (int run = 0; run < 2; ++run) {
    ASSERT_TRUE(method.execute());
    EXPECT_EQ(decode(method.output(0)).values, std::vector<double>{1000});
  }
}

TEST(MethodControl, ALoopWithoutEndIsAnError) {
  ProgramBuilder program;
  add_loop(program, INT64_MAX);
  Method method = *program.load();
  expect_error(method.execute(), ErrorCode::kBadInput, "does not end after 10000000 instructions");
}

TEST(MethodControl, MovesCopyNumbersAndAliasTensors) {
  ProgramBuilder program;
  const int32_t a = program.initialised(f32({2}, {1, 2}));
  const int32_t b = program.unplanned(DType::kF32, {2});
  const int32_t n = program.add(int64_t{4});
  const int32_t m = program.add(int64_t{0});
  const int32_t out = program.planned(DType::kF32, {2});
  program.method().outputs = {out, m};
  program.method().instructions.push_back(pte::MoveCall{a, b});
  program.method().instructions.push_back(pte::MoveCall{n, m});
  program.call("aten::add.out", {a, b, m, out});
  Method method = *program.load();
  ASSERT_TRUE(method.execute());
  EXPECT_EQ(decode(method.output(0)).values, (std::vector<double>{5, 10}));
  EXPECT_EQ(decode(method.output(1)).values, std::vector<double>{4});

  ProgramBuilder kinds;
  kinds.method().instructions.push_back(
      pte::MoveCall{kinds.add(int64_t{1}), kinds.planned(DType::kF32, {})});
  expect_load_error(kinds, ErrorCode::kBadInput, "cannot be moved");
}

TEST(MethodControl, AnOutputThatIsNeverSetIsAnError) {
  ProgramBuilder program;
  program.method().outputs = {program.unplanned(DType::kF32, {2})};
  Method method = *program.load();
  expect_error(method.execute(), ErrorCode::kBadInput, "output 0 is never set");
}

TEST(MethodObserve, SeesTheValueRightAfterItsInstruction) {
  ProgramBuilder program;
  const int32_t first = program.planned(DType::kF32, {2});
  const int32_t second = program.planned(DType::kF32, {2});
  // The second tensor overwrites the first.
  program.tensor(second).allocation = program.tensor(first).allocation;
  program.call("aten::neg.out", {program.constant(f32({2}, {1, 2})), first});
  program.call("aten::neg.out", {program.constant(f32({2}, {3, 4})), second});
  Method method = *program.load();
  std::vector<std::vector<double>> seen;
  const auto look = [&](const TensorView& view) { seen.push_back(decode(view).values); };
  ASSERT_TRUE(method.observe(first, look));
  ASSERT_TRUE(method.observe(first, look));  // replaces the first observer
  ASSERT_TRUE(method.observe(second, look));
  ASSERT_TRUE(method.execute());
  EXPECT_EQ(seen, (std::vector<std::vector<double>>{{-1, -2}, {-3, -4}}));
  expect_error(method.observe(2, look), ErrorCode::kUsage, "nothing produces value 2");
}

TEST(MethodLoad, ListsEveryOperatorWithoutAKernel) {
  ProgramBuilder program;
  program.method().operators = {{"aten::add", "out"}, {"aten::no_such", "out"}, {"my\nop", ""}};
  const auto method = program.load();
  ASSERT_FALSE(method);
  EXPECT_EQ(method.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(method.error().message.find("no kernel for 2 operators"), std::string::npos);
  ASSERT_EQ(method.error().details.size(), 2U);
  EXPECT_EQ(method.error().details[0], "'aten::no_such.out'");
  EXPECT_EQ(method.error().details[1].find('\n'), std::string::npos);
}

TEST(MethodLoad, RefusesWhatItCannotExecute) {
  ProgramBuilder delegated;
  delegated.method().delegates = {{"XnnpackBackend", 0}, {"CoreMLBackend", 0}};
  delegated.loaded().data.delegates.resize(1);
  expect_load_error(delegated, ErrorCode::kUnsupported, "parts are delegated to 'CoreMLBackend'");

  ProgramBuilder dtype;
  dtype.tensor(dtype.planned(DType::kU8, {2})).dtype = DType::kF8E4M3;
  expect_load_error(dtype, ErrorCode::kUnsupported, "dtype f8");

  ProgramBuilder absent;
  ThreadPool pool(1);
  const auto method = Method::load(absent.loaded(), "prefill", {}, pool, {}, "test.pte");
  ASSERT_FALSE(method);
  EXPECT_EQ(method.error().code, ErrorCode::kUsage);
}

// The list of constants is a method of several outputs.
TEST(MethodOutputs, NumbersAndTexts) {
  ProgramBuilder program;
  for (const pte::Value& value : std::vector<pte::Value>{
           0.25, int64_t{131}, true, std::string("torch.uint8"), std::string()}) {
    program.method().outputs.push_back(program.add(value));
  }
  auto method = program.load();
  ASSERT_TRUE(method) << method.error().message;
  ASSERT_TRUE(method->execute());
  const std::vector<DType> dtypes = {DType::kF64, DType::kI64, DType::kBool, DType::kU8,
                                     DType::kU8};
  const std::vector<Shape> shapes = {{}, {}, {}, {11}, {0}};
  for (size_t i = 0; i < 5; ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(method->output(i).dtype, dtypes[i]);
    EXPECT_EQ(method->output(i).shape, shapes[i]);
    EXPECT_EQ(method->output_meta(i).shape, shapes[i]);
    EXPECT_EQ(method->output_is_text(i), i >= 3);
  }
  EXPECT_EQ(decode(method->output(0)).values, std::vector<double>{0.25});
  EXPECT_EQ(decode(method->output(1)).values, std::vector<double>{131});
  const TensorView& text = method->output(3);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(text.bytes.data()), text.bytes.size()),
            "torch.uint8");
}

TEST(MethodOutputs, ListsAndTextsAsInputsAreRefused) {
  ProgramBuilder list;
  list.method().outputs.push_back(list.int_list({1, 2}));
  expect_load_error(list, ErrorCode::kUnsupported, "output 2 is no tensor, number or text");
  ProgramBuilder text;
  text.method().inputs.push_back(text.add(std::string("x")));
  expect_load_error(text, ErrorCode::kUnsupported, "input 0 is neither a tensor nor a number");
}

TEST(KernelTable, NamesOnlyOperatorsOfTheOfficialRuntime) {
  for (const kernels::Kernel& kernel : kernels::all_kernels()) {
    EXPECT_NE(pte::find_op_schema(kernel.name), nullptr) << kernel.name;
    EXPECT_EQ(kernels::find_kernel(kernel.name), &kernel);
  }
  EXPECT_EQ(kernels::find_kernel("aten::add"), nullptr);
  EXPECT_EQ(kernels::find_kernel(""), nullptr);
}

}  // namespace
}  // namespace ferry::runner::method_test
