// Caches that a method holds as codes (MethodOptions::kv_bits): which steps read them, and which
// programs are refused.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/runner/op_runner.h"

namespace ferry::runner::coded_caches_test {
namespace {

constexpr int64_t kContext = 9, kHeads = 2, kDim = 8, kTokens = 3, kPosition = 4;

enum class Use {
  kDirect,       // attention reads the buffers
  kSliced,       // attention reads slices of them
  kShared,       // the keys are the values too
  kByIndex,      // update_cache_with_indices writes them
  kOtherReader,  // another operator reads the slices, which are outputs too
  kMask,         // the buffer of the values is the mask
  kRead,         // another operator reads the buffer
  kOutput,       // the buffer is an output
  kDynamicStep,  // the step of the slices is no constant
  kAlias,        // another value has the memory of the buffer
};

Values some(DType dtype, const Shape& shape, double phase) {
  Values values{dtype, shape};
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  for (int64_t i = 0; i < n; ++i) {
    values.values.push_back(std::sin(static_cast<double>(i * i % 97) + phase));
  }
  return values;
}

// Writes kPosition rows, then kTokens more, and attends to all of them.
class Program {
 public:
  Program(DType dtype, Use use, int64_t dim = kDim) : dtype_(dtype), use_(use), dim_(dim) {
    const int32_t keys = cache(0.1);
    const int32_t values = use == Use::kShared ? keys : cache(0.7);
    const int32_t query = program.constant(some(dtype, {1, kTokens, 2 * kHeads, dim}, 0.3));
    const int32_t out = program.planned(dtype, {1, kTokens, 2 * kHeads, dim});
    const bool sliced = use != Use::kDirect && use != Use::kByIndex && use != Use::kRead;
    const int32_t key_rows = sliced ? slice(keys) : keys;
    const int32_t value_rows = sliced ? slice(values) : values;
    if (use == Use::kOtherReader) negate(key_rows);
    if (use == Use::kRead) negate(keys);
    if (use == Use::kOutput) program.method().outputs.push_back(keys);
    if (use == Use::kAlias) negate(program.add(program.tensor(keys)));
    program.call("llama::custom_sdpa.out", {query, key_rows, value_rows, program.add(kPosition),
                                            use == Use::kMask ? values : none(), program.add(0.0),
                                            program.add(true), none(), out});
    program.method().outputs.push_back(out);
    if (use == Use::kOtherReader) program.method().outputs.push_back(value_rows);
  }

  std::vector<Values> run(MethodOptions options) {
    Method method = *program.load(options);
    std::vector<Values> outputs;
    for (int call = 0; call < 2; ++call) {
      const Status status = method.execute();
      EXPECT_TRUE(status) << status.error().message;
    }
    for (size_t i = 0; i < method.output_count(); ++i) outputs.push_back(decode(method.output(i)));
    return outputs;
  }

  ProgramBuilder program;
  int32_t buffer = 0;

 private:
  int32_t none() { return program.add(pte::None{}); }

  int32_t cache(double phase) {
    buffer = program.planned(dtype_, {1, kContext, kHeads, dim_});
    write(some(dtype_, {1, kPosition, kHeads, dim_}, phase), 0);
    write(some(dtype_, {1, kTokens, kHeads, dim_}, phase + 1), kPosition);
    return buffer;
  }
  void write(const Values& rows, int64_t at) {
    const int32_t value = program.constant(rows), out = program.planned(DType::kF32, {1});
    if (use_ != Use::kByIndex) {
      program.call("llama::update_cache.out", {value, buffer, program.add(at), out});
      return;
    }
    Values indices{DType::kI64, {1, rows.shape[1]}};
    for (int64_t i = 0; i < rows.shape[1]; ++i) indices.values.push_back(double(at + i));
    program.call("llama::update_cache_with_indices.out",
                 {value, buffer, program.add(at), program.constant(indices), out});
  }
  int32_t slice(int32_t of) {
    const int32_t out = program.planned(dtype_, {1, kPosition + kTokens, kHeads, dim_});
    const int32_t step = program.add(int64_t{1});
    if (use_ == Use::kDynamicStep) program.method().outputs.push_back(step);
    program.call("aten::slice_copy.Tensor_out",
                 {of, program.add(int64_t{1}), program.add(int64_t{0}),
                  program.add(kPosition + kTokens), step, out});
    return out;
  }
  void negate(int32_t value) {
    const pte::Tensor& from = program.tensor(value);
    const Shape shape(from.sizes.begin(), from.sizes.end());
    const int32_t out = program.planned(dtype_, shape);
    program.call("aten::neg.out", {value, out});
    program.method().outputs.push_back(out);
  }

  DType dtype_;
  Use use_;
  int64_t dim_;
};

double largest_difference(const std::vector<Values>& a, const std::vector<Values>& b) {
  double most = 0;
  EXPECT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].shape, b[i].shape);
    for (size_t j = 0; j < a[i].values.size(); ++j) {
      const double difference = std::abs(a[i].values[j] - b[i].values[j]);
      most = difference <= most ? most : difference;  // NaN is kept
    }
  }
  return most;
}

TEST(CodedCaches, StandForTheirValues) {
  for (const Use use :
       {Use::kDirect, Use::kSliced, Use::kShared, Use::kByIndex, Use::kOtherReader}) {
    for (const DType dtype : {DType::kF32, DType::kF16}) {
      SCOPED_TRACE(static_cast<int>(use));
      Program program(dtype, use);
      const auto stated = program.run({});
      const auto in8 = program.run({.poison = true, .kv_bits = {8, 8}});
      const auto mixed = program.run({.poison = true, .kv_bits = {8, 4}});
      const auto in4 = program.run({.poison = true, .kv_bits = {4, 4}});
      EXPECT_LT(largest_difference(in8, stated), 0.02);
      EXPECT_LT(largest_difference(in4, stated), 0.3);
      // They are codes: the results differ, and in 4 bits more.
      EXPECT_GT(largest_difference(in8, stated), 0);
      EXPECT_GT(largest_difference(in4, stated), largest_difference(in8, stated));
      EXPECT_GT(largest_difference(mixed, in8), use == Use::kShared ? -1 : 0);
      EXPECT_GT(largest_difference(mixed, in4), 0);
      // Execution as stated reads the same codes.
      EXPECT_LT(largest_difference(program.run({.literal = true, .kv_bits = {8, 8}}), in8), 1e-6);
    }
  }
}

TEST(CodedCaches, AreNotGivenAsBuffers) {
  Program program(DType::kF32, Use::kDirect);
  Method method = *program.program.load({.kv_bits = {8, 8}});
  EXPECT_TRUE(method.has_coded_caches());
  EXPECT_FALSE(method.value(program.buffer));
  const std::vector<std::byte> bytes(kContext * kHeads * kDim * 4);
  EXPECT_FALSE(method.overwrite(program.buffer, bytes));
  EXPECT_FALSE(method.overwrite_front(program.buffer, bytes));
  EXPECT_FALSE(program.program.load({})->has_coded_caches());
}

TEST(CodedCaches, AreForgottenByAReset) {
  Program program(DType::kF32, Use::kDirect);
  Method method = *program.program.load({.kv_bits = {8, 8}});
  ASSERT_TRUE(method.execute());
  const auto first = decode(method.output(0)).values;
  method.reset();
  ASSERT_TRUE(method.execute());
  EXPECT_EQ(decode(method.output(0)).values, first);
}

// The buffers of a long context may be larger than the memory, because they are never touched.
TEST(CodedCaches, TakeTheMemoryOfTheirCodes) {
  Program program(DType::kF32, Use::kDirect);
  const uint64_t all = program.program.method().memory_bytes[1];
  const uint64_t buffers = uint64_t{2} * kContext * kHeads * kDim * 4;
  const uint64_t codes = uint64_t{2} * kContext * kHeads * (kDim + 2);
  EXPECT_FALSE(program.program.load({.memory = all - 1}));
  EXPECT_TRUE(program.program.load({.kv_bits = {8, 8}, .memory = all - buffers + codes}));
  EXPECT_FALSE(program.program.load({.kv_bits = {8, 8}, .memory = all - buffers + codes - 1}));
}

void expect_refused(Program&& program, const std::string& why) {
  const auto refused = program.program.load({.kv_bits = {4, 4}});
  ASSERT_FALSE(refused) << why;
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(refused.error().message.find(why), std::string::npos) << refused.error().message;
}

TEST(CodedCaches, RefuseWhatUsesThemOtherwise) {
  expect_refused({DType::kF32, Use::kRead}, "is used by instruction 4 (aten::neg.out)");
  // A second cache in the same memory, of another shape, may be larger than the codes of the first.
  Program two(DType::kF32, Use::kDirect);
  const int32_t small = two.program.planned(DType::kF32, {1, 1, 1, 4});
  two.program.tensor(small).allocation = two.program.tensor(two.buffer).allocation;
  two.program.call("llama::update_cache.out",
                   {two.program.constant(some(DType::kF32, {1, 1, 1, 4}, 0)), small,
                    two.program.add(int64_t{0}), two.program.planned(DType::kF32, {1})});
  expect_refused(std::move(two), "has memory of another cache");
  expect_refused({DType::kF32, Use::kMask}, "is used by instruction 6 (llama::custom_sdpa.out)");
  expect_refused({DType::kF32, Use::kDynamicStep}, "(aten::slice_copy.Tensor_out)");
  expect_refused({DType::kF32, Use::kAlias}, "has the memory of value");
  expect_refused({DType::kF32, Use::kOutput}, "is an input or output");
  expect_refused({DType::kF32, Use::kDirect, 6}, "a multiple of 4");
}

}  // namespace
}  // namespace ferry::runner::coded_caches_test
