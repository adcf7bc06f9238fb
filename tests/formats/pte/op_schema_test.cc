#include "formats/pte/op_schema.h"

#include <gtest/gtest.h>

#include <thread>

namespace ferry::pte::op_schema_test {
namespace {

TEST(OpSchema, HasDefaultsOutsAndRepeatedResult) {
  const OpSchema* add = find_op_schema("aten::add.out");
  ASSERT_NE(add, nullptr);
  EXPECT_EQ(add->name, "aten::add");
  EXPECT_EQ(add->overload, "out");
  EXPECT_EQ(add->full_name(), "aten::add.out");
  ASSERT_EQ(add->args.size(), 4u);
  EXPECT_EQ(add->args[2].name, "alpha");
  EXPECT_EQ(add->args[2].kind, ArgKind::kScalar);
  EXPECT_FALSE(add->args[2].out);
  EXPECT_TRUE(add->args[3].out);
  EXPECT_EQ(add->call_args(), 5u);
}

// The numbers of arguments are those of calls in programs of the official exporter, with the
// repeated result.
TEST(OpSchema, CountsArgumentsAsTheExporterDoes) {
  const struct {
    const char* name;
    size_t args;
  } kCounts[] = {
      {"aten::sym_size.int", 3},
      {"aten::embedding.out", 7},
      {"aten::select_copy.int_out", 5},
      {"aten::_local_scalar_dense", 2},
      {"executorch_prim::add.Scalar", 3},
      {"aten::slice_copy.Tensor_out", 7},
      {"aten::mul.out", 4},
      {"aten::mean.out", 6},
      {"aten::rsqrt.out", 3},
      {"aten::eq.Scalar_out", 4},
      {"aten::_to_copy.out", 5},
      {"aten::slice_scatter.out", 8},
      {"aten::linear.out", 5},
      {"aten::convolution.out", 11},
      {"aten::copy.out", 5},
      {"aten::copy_", 4},
      {"aten::split_with_sizes_copy.out", 5},
      {"executorch_prim::et_view.default", 3},
      {"executorch_prim::et_copy_index.tensor", 3},
      {"aten::expand_copy.out", 5},
      {"aten::where.self_out", 5},
      {"aten::index_put.out", 6},
      {"aten::cat.out", 4},
      {"llama::update_cache.out", 5},
      {"llama::custom_sdpa.out", 10},
      {"llama::gated_delta_rule.out", 9},
      {"llama::fallback.out", 3},
      {"dim_order_ops::_clone_dim_order.out", 5},
      {"dim_order_ops::_to_dim_order_copy.out", 5},
      {"quantized_decomposed::quantize_per_tensor.out", 8},
      {"quantized_decomposed::dequantize_per_tensor.out", 9},
  };
  for (const auto& row : kCounts) {
    const OpSchema* schema = find_op_schema(row.name);
    ASSERT_NE(schema, nullptr) << row.name;
    EXPECT_EQ(schema->call_args(), row.args) << row.name;
    EXPECT_EQ(schema->full_name(), row.name);
  }
}

TEST(OpSchema, ParsesOptionalListAndMutatedKinds) {
  const OpSchema* conv = find_op_schema("aten::convolution.out");
  EXPECT_TRUE(conv->args[2].optional);
  EXPECT_EQ(conv->args[3].kind, ArgKind::kIntList);
  EXPECT_EQ(conv->args[6].kind, ArgKind::kBool);
  const OpSchema* index = find_op_schema("aten::index.Tensor_out");
  EXPECT_EQ(index->args[1].kind, ArgKind::kOptionalTensorList);
  EXPECT_FALSE(index->args[1].optional);
  const OpSchema* mean = find_op_schema("aten::mean.out");
  EXPECT_EQ(mean->args[1].kind, ArgKind::kIntList);
  EXPECT_TRUE(mean->args[1].optional);
  const OpSchema* cache = find_op_schema("llama::update_cache.out");
  EXPECT_TRUE(cache->args[1].mutated);
  EXPECT_FALSE(cache->args[1].out);
  EXPECT_EQ(find_op_schema("aten::copy_")->result, ResultStyle::kRepeatSelf);
  EXPECT_EQ(find_op_schema("aten::sym_size.int")->result, ResultStyle::kTrailingOut);
  EXPECT_EQ(find_op_schema("llama::custom_sdpa.out")->args[5].kind, ArgKind::kFloat);
}

TEST(OpSchema, UnknownNamesAreUnknown) {
  for (const char* name : {"", "aten::add", "aten::add.", "aten::add.out ", "aten::silu.out"}) {
    EXPECT_EQ(find_op_schema(name), nullptr) << name;
  }
}

TEST(OpSchema, EveryThreadSeesOneTable) {
  const OpSchema* seen[4] = {};
  {
    std::vector<std::jthread> threads;
    for (auto& slot : seen) {
      threads.emplace_back([&slot] { slot = find_op_schema("aten::bmm.out"); });
    }
  }
  for (const OpSchema* schema : seen) EXPECT_EQ(schema, seen[0]);
}

}  // namespace
}  // namespace ferry::pte::op_schema_test
