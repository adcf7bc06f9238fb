// Several methods of one program share one state and one arena.
#include "runner/method.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/kernel_table.h"
#include "runner/memory.h"
#include "tests/runner/op_runner.h"

namespace ferry::runner::method_sharing_test {
namespace {

// An input with its bytes.
struct Given {
  explicit Given(Values v) : values(std::move(v)), bytes(encode(values)) {}
  TensorView view() const { return {values.dtype, values.shape, bytes}; }
  Values values;
  std::vector<std::byte> bytes;
};

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
}  // namespace ferry::runner::method_sharing_test
