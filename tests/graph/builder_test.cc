// Inference of the builder: shapes and dtypes as in torch, symbols included. Misuse is refused.

#include "graph/builder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "graph/dims.h"
#include "tests/graph/builder_cases.h"

namespace ferry::graph::builder_test {
namespace {

TEST(Builder, ArithmeticBroadcastsAndPromotes) {
  const auto add = [](Dims a, Dims b) {
    return [=](Fixture& f) { return f.b.add(f.f32(a), f.f32(b)); };
  };
  const auto typed = [](DType a, DType b) {
    return [=](Fixture& f) { return f.b.mul(f.of(a, {2}), f.of(b, {2})); };
  };
  check({
      {"same shape", add({2, 3}, {2, 3}), "f32[2,3]"},
      {"trailing dimensions align", add({4, 2, 3}, {3}), "f32[4,2,3]"},
      {"ones stretch on both sides", add({4, 1, 3}, {1, 5, 1}), "f32[4,5,3]"},
      {"rank 0", add({}, {7}), "f32[7]"},
      {"a zero is no one", add({0}, {2}), ""},
      {"other sizes", add({2}, {3}), ""},
      {"a symbol against one",
       [](Fixture& f) {
         return f.b.add(f.f32({1, f.t, 4}), f.f32({1, 1, 4}));
       },
       "f32[1,T,4]"},
      {"a symbol against a number", [](Fixture& f) { return f.b.add(f.f32({f.t}), f.f32({2})); },
       ""},
      {"f16 with f32", typed(DType::kF16, DType::kF32), "f32[2]"},
      {"f16 with bf16", typed(DType::kF16, DType::kBF16), "f32[2]"},
      {"bool with i64", typed(DType::kBool, DType::kI64), "i64[2]"},
      {"i64 with f16", typed(DType::kI64, DType::kF16), "f16[2]"},
      {"i32 with i64", typed(DType::kI32, DType::kI64), "i64[2]"},
      {"a number keeps the dtype", [](Fixture& f) { return f.b.mul(f.of(DType::kBF16, {2}), 0.5); },
       "bf16[2]"},
      {"comparison",
       [](Fixture& f) {
         return f.b.gt(f.f32({2, f.t}), 1.0);
       },
       "bool[2,T]"},
      {"and",
       [](Fixture& f) {
         const ValueId a = f.of(DType::kI64, {f.t, 1});
         return f.b.logical_and(f.b.ge(a, 0), f.b.lt(f.of(DType::kI64, {3}), 4));
       },
       "bool[T,3]"},
      {"or",
       [](Fixture& f) {
         const ValueId a = f.of(DType::kI64, {f.t, 1});
         return f.b.logical_or(f.b.ge(a, 0), f.b.lt(f.of(DType::kI64, {3}), 4));
       },
       "bool[T,3]"},
      {"remainder", [](Fixture& f) { return f.b.remainder(f.of(DType::kI64, {f.t}), 8); },
       "i64[T]"},
      {"remainder of floats", [](Fixture& f) { return f.b.remainder(f.f32({f.t}), 8); }, ""},
      {"where",
       [](Fixture& f) {
         return f.b.where(f.b.eq(f.of(DType::kI64, {f.t, 1}), 0), f.b.scalar(0), f.f32({1, 5}));
       },
       "f32[T,5]"},
      {"limits of one number",
       [](Fixture& f) {
         return f.b.clamp(f.f32({2, f.t}), f.f32({}), f.f32({}));
       },
       "f32[2,T]"},
      {"limits have the dtype of the values",
       [](Fixture& f) { return f.b.clamp(f.f32({2}), f.of(DType::kF16, {}), f.f32({})); }, ""},
      {"limits do not widen the values",
       [](Fixture& f) { return f.b.clamp(f.f32({1}), f.f32({2}), f.f32({})); }, ""},
      {"where wants a condition",
       [](Fixture& f) { return f.b.where(f.f32({2}), f.f32({2}), f.f32({2})); }, ""},
      {"mean",
       [](Fixture& f) {
         return f.b.mean_last(f.f32({1, f.t, 8}));
       },
       "f32[1,T,1]"},
      {"smallest",
       [](Fixture& f) {
         return f.b.amin_last(f.f32({1, f.t, 8}));
       },
       "f32[1,T,1]"},
      {"sum of rank 0", [](Fixture& f) { return f.b.sum_last(f.f32({})); }, ""},
      {"softmax",
       [](Fixture& f) {
         return f.b.softmax_last(f.f32({3, f.t}));
       },
       "f32[3,T]"},
      {"softmax of rank 0", [](Fixture& f) { return f.b.softmax_last(f.f32({})); }, ""},
      {"gelu",
       [](Fixture& f) {
         return f.b.gelu(f.f32({f.t, 4}), "tanh");
       },
       "f32[T,4]"},
      {"relu",
       [](Fixture& f) {
         return f.b.relu(f.f32({f.t, 4}));
       },
       "f32[T,4]"},
      {"layer norm without parameters",
       [](Fixture& f) {
         return f.b.layer_norm(f.f32({1, f.t, 4}), {}, {}, 1e-5);
       },
       "f32[1,T,4]"},
      {"layer norm without bias",
       [](Fixture& f) {
         return f.b.layer_norm(f.f32({1, f.t, 4}), f.b.weight("w", {4}), {}, 1e-5);
       },
       "f32[1,T,4]"},
      {"layer norm with another width",
       [](Fixture& f) {
         return f.b.layer_norm(f.f32({1, f.t, 4}), f.b.weight("w", {3}), {}, 1e-5);
       },
       ""},
      {"rsqrt of integers", [](Fixture& f) { return f.b.rsqrt(f.of(DType::kI64, {1})); }, ""},
  });
}

TEST(Builder, MatricesMeetAtTheirInnerDimension) {
  const auto linear = [](DType x, Dims shape, Dims w) {
    return [=](Fixture& f) { return f.b.linear(f.of(x, shape), f.b.weight("w", w)); };
  };
  check({
      {"linear", linear(DType::kF32, {1, 3, 4}, {6, 4}), "f32[1,3,6]"},
      {"inner dimensions differ", linear(DType::kF32, {1, 3, 4}, {4, 6}), ""},
      {"dtypes differ", linear(DType::kF16, {1, 3, 4}, {6, 4}), ""},
      {"a vector", linear(DType::kF32, {4}, {6, 4}), ""},
      {"batches of products",
       [](Fixture& f) {
         return f.b.bmm(f.f32({2, Dim::of(f.symbol, 3), 4}), f.f32({2, 4, f.t}));
       },
       "f32[2,3*T,T]"},
      {"products of other inner dimensions",
       [](Fixture& f) {
         return f.b.bmm(f.f32({2, 3, 4}), f.f32({2, f.t, 4}));
       },
       ""},
      {"products of other batches",
       [](Fixture& f) {
         return f.b.bmm(f.f32({2, 3, 4}), f.f32({1, 4, 3}));
       },
       ""},
      {"embedding",
       [](Fixture& f) {
         return f.b.embedding(f.b.weight("w", {9, 4}), f.tokens);
       },
       "f32[1,T,4]"},
      {"indices are integers",
       [](Fixture& f) {
         return f.b.embedding(f.b.weight("w", {9, 4}), f.f32({1}));
       },
       ""},
      {"depthwise convolution",
       [](Fixture& f) {
         return f.b.depthwise_conv1d(f.f32({1, 6, Dim::of(f.symbol, 1, 3)}),
                                     f.b.weight("w", {6, 1, 4}));
       },
       "f32[1,6,T]"},
      {"the kernel may be longer than the input",
       [](Fixture& f) {
         return f.b.depthwise_conv1d(f.f32({1, 6, f.t}), f.b.weight("w", {6, 1, 4}));
       },
       ""},
      {"channels differ",
       [](Fixture& f) {
         return f.b.depthwise_conv1d(f.f32({1, 5, 9}), f.b.weight("w", {6, 1, 4}));
       },
       ""},
      {"convolution in steps",
       [](Fixture& f) {
         return f.b.conv(f.f32({1, 5, 9}), f.b.weight("w", {6, 5, 4}), f.b.weight("b", {6}),
                         {.step = 3});
       },
       "f32[1,6,2]"},
      {"steps over a dynamic dimension make a declared number of windows",
       [](Fixture& f) {
         f.b.windows("R", f.t, 4, 3);
         return f.b.conv(f.f32({1, 5, f.t}), f.b.weight("w", {6, 5, 4}), {}, {.step = 3});
       },
       "f32[1,6,R]"},
      {"other windows are declared",
       [](Fixture& f) {
         f.b.windows("R", f.t, 4, 2);
         return f.b.conv(f.f32({1, 5, f.t}), f.b.weight("w", {6, 5, 4}), {}, {.step = 3});
       },
       ""},
  });
}

TEST(Builder, PaddingMakesMoreWindows) {
  check({
      {"of zeros on both sides",
       [](Fixture& f) {
         return f.b.conv(f.f32({1, 4, 9}), f.b.weight("w", {4, 1, 5}), {},
                         {.padding = 2, .groups = 4});
       },
       "f32[1,4,9]"},
      {"of a dynamic dimension",
       [](Fixture& f) {
         return f.b.conv(f.f32({1, 4, f.t}), f.b.weight("w", {4, 1, 5}), {},
                         {.padding = 2, .groups = 4});
       },
       "f32[1,4,T]"},
      {"in two dimensions",
       [](Fixture& f) {
         f.b.windows("R", f.t, 3, 2, 1);
         return f.b.conv(f.f32({1, 1, f.t, 80}), f.b.weight("w", {6, 1, 3, 3}),
                         f.b.weight("b", {6}), {.step = 2, .padding = 1});
       },
       "f32[1,6,R,40]"},
      {"windows are declared without padding",
       [](Fixture& f) {
         f.b.windows("R", f.t, 3, 2);
         return f.b.conv(f.f32({1, 1, f.t, 80}), f.b.weight("w", {6, 1, 3, 3}), {},
                         {.step = 2, .padding = 1});
       },
       ""},
      {"the kernel is longer than what there is with padding",
       [](Fixture& f) {
         return f.b.conv(f.f32({1, 4, 2}), f.b.weight("w", {4, 4, 7}), {}, {.padding = 2});
       },
       ""},
  });
}

TEST(Builder, SlicesKnowTheirLength) {
  const auto slice = [](Dim size, int64_t start, int64_t end) {
    return [=](Fixture& f) { return f.b.slice(f.f32({size, 2}), 0, start, end); };
  };
  const Dim t = Dim::of(0);
  const Dim t4 = Dim::of(0, 1, 4);
  check({
      {"numbers", slice(9, 2, 5), "f32[3,2]"},
      {"to the end", slice(9, 2, kEnd), "f32[7,2]"},
      {"behind the end", slice(9, 2, 100), "f32[7,2]"},
      {"from the end", slice(9, -3, -1), "f32[2,2]"},
      {"empty", slice(9, 5, 5), "f32[0,2]"},
      {"backwards", slice(9, 5, 4), ""},
      {"before the start", slice(9, -10, 4), ""},
      {"the last four of 4+T", slice(t4, -4, kEnd), "f32[4,2]"},
      {"all but the first four of 4+T", slice(t4, 4, kEnd), "f32[T,2]"},
      {"the first four of 4+T", slice(t4, 0, 4), "f32[4,2]"},
      {"all but the last", slice(t, 0, -1), "f32[T-1,2]"},
      {"the first four of T, which may be one", slice(t, 0, 4), ""},
      {"the last two of T, which may be one", slice(t, -2, kEnd), ""},
      {"T numbers from a position",
       [](Fixture& f) {
         return f.b.slice(f.f32({32, 2}), 0, f.start, f.end, f.t);
       },
       "f32[T,2]"},
      {"from a position to the end of T",
       [](Fixture& f) { return f.b.slice(f.f32({f.t}), 0, f.b.int_sub(f.count, 1), kEnd); },
       "f32[1]"},
      {"another length than the caller says",
       [](Fixture& f) {
         return f.b.slice(f.f32({32, 2}), 0, f.start, f.end, Dim::of(f.symbol, 1, 1));
       },
       ""},
      {"longer than the dimension",
       [](Fixture& f) {
         return f.b.slice(f.f32({7, 2}), 0, f.start, f.end);
       },
       ""},
      {"a length that is no symbol",
       [](Fixture& f) {
         return f.b.slice(f.f32({32, 2}), 0, 0, f.start);
       },
       ""},
      {"a length of its own symbol",
       [](Fixture& f) {
         const ValueId first = f.b.int_max(f.b.int_sub(f.start, 3), 0);
         const int32_t w = f.b.symbol("W", 11, f.b.int_sub(f.end, first));
         return f.b.slice(f.f32({32}), 0, first, f.end, Dim::of(w));
       },
       "f32[W]"},
      {"arange", [](Fixture& f) { return f.b.arange(f.start, f.end, f.t); }, "i64[T]"},
      {"arange of numbers", [](Fixture& f) { return f.b.arange(2, 7, 5); }, "i64[5]"},
  });
}

TEST(Builder, LayoutKeepsTheElements) {
  const auto view = [](Dims from, Dims to) {
    return [=](Fixture& f) { return f.b.view(f.f32(from), to); };
  };
  const Dim t = Dim::of(0);
  const Dim t2 = Dim::of(0, 2);
  check({
      {"view", view({2, 6}, {3, 4}), "f32[3,4]"},
      {"view of another count", view({2, 6}, {3, 5}), ""},
      {"heads", view({1, t, 12}, {1, t, 3, 4}), "f32[1,T,3,4]"},
      {"twice T", view({1, t, 8}, {t2, 4}), "f32[2*T,4]"},
      {"twice T where the rest does not fit", view({1, t, 8}, {t2, 3}), ""},
      {"T is lost", view({1, t, 8}, {8}), ""},
      {"T+4 as it is", view({Dim::of(0, 1, 4), 2}, {1, Dim::of(0, 1, 4), 2}), "f32[1,T+4,2]"},
      {"cat",
       [](Fixture& f) {
         return f.b.cat({f.f32({2, 3}), f.f32({2, f.t})}, 1);
       },
       "f32[2,T+3]"},
      {"cat of T and T",
       [](Fixture& f) {
         return f.b.cat({f.f32({f.t}), f.f32({f.t})}, -1);
       },
       "f32[2*T]"},
      {"cat of two symbols",
       [](Fixture& f) {
         const int32_t u = f.b.symbol("U", 4, {});
         return f.b.cat({f.f32({f.t}), f.f32({Dim::of(u)})}, 0);
       },
       ""},
      {"cat of other shapes",
       [](Fixture& f) {
         return f.b.cat({f.f32({2, 3}), f.f32({3, 3})}, 1);
       },
       ""},
      {"cat of nothing", [](Fixture& f) { return f.b.cat({}, 0); }, ""},
      {"permute",
       [](Fixture& f) {
         return f.b.permute(f.f32({1, f.t, 3}), {2, 0, 1});
       },
       "f32[3,1,T]"},
      {"permute twice the same",
       [](Fixture& f) {
         return f.b.permute(f.f32({1, 2}), {1, 1});
       },
       ""},
      {"unsqueeze at the end", [](Fixture& f) { return f.b.unsqueeze(f.f32({2}), -1); },
       "f32[2,1]"},
      {"expand",
       [](Fixture& f) {
         return f.b.expand(f.f32({1, f.t, 1}), {1, f.t, 5});
       },
       "f32[1,T,5]"},
      {"expand what is not one", [](Fixture& f) { return f.b.expand(f.f32({2}), {4}); }, ""},
      {"select the last",
       [](Fixture& f) {
         return f.b.select(f.f32({1, f.t, 4}), 1, -1);
       },
       "f32[1,4]"},
      {"select the second of T", [](Fixture& f) { return f.b.select(f.f32({f.t}), 0, 1); }, ""},
      {"split",
       [](Fixture& f) {
         return f.b.split(f.f32({f.t, 7}), {3, 4}, 1)[1];
       },
       "f32[T,4]"},
      {"split leaves something",
       [](Fixture& f) {
         return f.b.split(f.f32({7}), {3, 3}, 0)[1];
       },
       ""},
      {"cast", [](Fixture& f) { return f.b.to(f.f32({f.t}), DType::kF16); }, "f16[T]"},
      {"a size",
       [](Fixture& f) {
         return f.b.sym_size(f.f32({f.t, 2}), 1);
       },
       "int"},
  });
}

TEST(Builder, AStateIsNeverReadAndWrittenByOneNode) {
  for (const bool through_view : {false, true}) {
    Fixture f;
    const Dims shape = {1, 1, 2, 2};
    const ValueId state = f.b.buffer("state", DType::kF32, shape);
    const ValueId initial = through_view ? f.b.view(state, shape) : state;
    const ValueId x = f.f32({1, 1, f.t, 2});
    const ValueId steps = f.f32({1, 1, f.t});
    f.b.gated_delta_rule(x, x, x, steps, steps, initial, state);
    EXPECT_FALSE(f.b.finish().has_value());
  }
}

TEST(Builder, BuffersAreWrittenInTheirOwnShape) {
  Fixture f;
  const ValueId state = f.b.buffer("state", DType::kF32, {4});
  f.b.slice_into(state, f.f32({Dim::of(f.symbol, 1, 4)}), 0, -4, kEnd);
  f.b.copy_into(state, f.f32({4}));
  const Result<Graph> graph = f.b.finish();
  ASSERT_TRUE(graph.has_value()) << graph.error().message;

  Fixture g;
  g.b.slice_into(g.b.buffer("state", DType::kF32, {4}), g.f32({9}), 0, -3, kEnd);
  EXPECT_FALSE(g.b.finish().has_value());
}

TEST(Builder, EqualLiteralsAreOneValue) {
  GraphBuilder b(1);
  EXPECT_EQ(b.scalar(0.5F), b.scalar(0.5F));
  EXPECT_NE(b.scalar(0.5F), b.scalar(0.25F));
  EXPECT_NE(b.scalar(0.0F), b.scalar(-0.0F));
  EXPECT_EQ(b.graph().literals.size(), 4U);
}

TEST(Builder, LiteralsFillWhatTheySay) {
  GraphBuilder b(1);
  b.scalar(-1.5F);
  const Literal& literal = b.graph().literals[0];
  float number = 0;
  literal.fill(0, std::as_writable_bytes(std::span(&number, 1)));
  EXPECT_EQ(number, -1.5F);
  float pieces = 0;
  const auto bytes = std::as_writable_bytes(std::span(&pieces, 1));
  literal.fill(3, bytes.subspan(3));
  literal.fill(0, bytes.first(3));
  EXPECT_EQ(pieces, -1.5F);
}

TEST(Builder, AWeightIsOneValuePerName) {
  GraphBuilder b(1);
  EXPECT_EQ(b.weight("w", {2, 3}), b.weight("w", {2, 3}));
  b.weight("w", {3, 2});
  EXPECT_FALSE(b.finish().has_value());
}

TEST(Builder, TheFirstMisuseIsReportedAndBuildingGoesOn) {
  Fixture f;
  const ValueId wrong = f.b.linear(f.f32({1, 2}), f.b.weight("first", {2, 3}));
  const std::vector<ValueId> parts = f.b.split(wrong, {1, 1, 1}, 0);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_FALSE(f.b.graph()[f.b.mul(parts[2], wrong)].shape.empty());
  f.b.add(f.f32({2}), f.f32({3}));
  const Result<Graph> graph = f.b.finish();
  ASSERT_FALSE(graph.has_value());
  EXPECT_EQ(graph.error().message,
            "graph: aten::linear.out on (f32[1,2], f32[2,3]): inner dimensions differ");
}

TEST(Builder, AnInvalidValueIsMisuseAndNotACrash) {
  GraphBuilder b(1);
  b.exp(ValueId{});
  b.add(ValueId{99}, ValueId{0});
  EXPECT_FALSE(b.finish().has_value());
}

TEST(Builder, AttentionAndDeltaRuleCheckEveryShape) {
  const auto sdpa = [](Dims q, Dims k) {
    return [=](Fixture& f) {
      const ValueId keys = f.f32(k);
      return f.b.sdpa(f.f32(q), keys, keys, f.start);
    };
  };
  const Dim t = Dim::of(0);
  const auto delta = [t](Dims key, Dims value, Dims decay, Dims state) {
    return [=](Fixture& f) {
      const ValueId k = f.f32(key);
      return f.b
          .gated_delta_rule(
              k, k, f.f32(value), f.f32(decay), f.f32({1, 3, t}),
              f.b.where(f.b.eq(f.of(DType::kI64, {}), 0), f.b.scalar(0), f.f32(state)),
              f.b.buffer("state", DType::kF32, {1, 3, 4, 5}))
          .first;
    };
  };
  const auto cache = [](Dims value, Dims held) {
    return [=](Fixture& f) {
      const ValueId buffer = f.b.buffer("cache", DType::kF32, held);
      f.b.update_cache(f.f32(value), buffer, f.start);
      return buffer;
    };
  };
  const auto ring = [t](Dims held, DType dtype, Dims indices) {
    return [=](Fixture& f) {
      const ValueId buffer = f.b.buffer("cache", DType::kF32, held);
      const ValueId value = f.f32({1, t, 2, 4});
      f.b.update_cache_rows(value, buffer, f.start, f.of(dtype, indices));
      return buffer;
    };
  };
  check({
      {"rows of a cache", ring({1, 8, 2, 4}, DType::kI64, {1, t}), "f32[1,8,2,4]"},
      {"rows at positions of i32", ring({1, 8, 2, 4}, DType::kI32, {1, t}), ""},
      {"rows at fewer positions", ring({1, 8, 2, 4}, DType::kI64, {1, 2}), ""},
      {"rows of other heads", ring({1, 8, 3, 4}, DType::kI64, {1, t}), ""},
      {"grouped heads", sdpa({1, t, 4, 8}, {1, 32, 2, 8}), "f32[1,T,4,8]"},
      {"heads that do not divide", sdpa({1, t, 4, 8}, {1, 32, 3, 8}), ""},
      {"other head sizes", sdpa({1, t, 4, 8}, {1, 32, 2, 4}), ""},
      {"mask",
       [](Fixture& f) {
         const ValueId keys = f.f32({1, 6, 2, 8});
         return f.b.sdpa_masked(f.f32({1, f.t, 2, 8}), keys, keys, f.f32({f.t, 6}));
       },
       "f32[1,T,2,8]"},
      {"mask of other keys",
       [](Fixture& f) {
         const ValueId keys = f.f32({1, 6, 2, 8});
         return f.b.sdpa_masked(f.f32({1, f.t, 2, 8}), keys, keys, f.f32({f.t, 5}));
       },
       ""},
      {"cache", cache({1, t, 2, 4}, {1, 8, 2, 4}), "f32[1,8,2,4]"},
      {"a cache shorter than a call", cache({1, t, 2, 4}, {1, 7, 2, 4}), ""},
      {"a cache of other heads", cache({1, t, 2, 4}, {1, 8, 1, 4}), ""},
      {"delta rule", delta({1, 3, t, 4}, {1, 3, t, 5}, {1, 3, t}, {1, 3, 4, 5}), "f32[1,3,T,5]"},
      {"decay per channel", delta({1, 3, t, 4}, {1, 3, t, 5}, {1, 3, t, 4}, {1, 3, 4, 5}),
       "f32[1,3,T,5]"},
      {"decay of other steps", delta({1, 3, t, 4}, {1, 3, t, 5}, {1, 3, 2}, {1, 3, 4, 5}), ""},
      {"state transposed", delta({1, 3, t, 4}, {1, 3, t, 5}, {1, 3, t}, {1, 3, 5, 4}), ""},
  });
}

TEST(Builder, CodesHaveTheShapeOfTheirValues) {
  const auto codes = [](double scale, int64_t zero_point, DType dtype) {
    return [=](Fixture& f) { return f.b.quantize(f.f32({1, f.t}), scale, zero_point, dtype); };
  };
  const auto values = [](DType dtype, double scale, int64_t zero_point) {
    return [=](Fixture& f) { return f.b.dequantize(f.of(dtype, {2, 3}), scale, zero_point); };
  };
  check({
      {"bytes", codes(0.5, 255, DType::kU8), "u8[1,T]"},
      {"words", codes(0.5, 65535, DType::kU16), "u16[1,T]"},
      {"signed bytes", codes(0.5, -128, DType::kI8), "i8[1,T]"},
      {"no codes of 32 bits", codes(0.5, 0, DType::kI32), ""},
      {"no codes in floats", codes(0.5, 0, DType::kF32), ""},
      {"a zero point above", codes(0.5, 256, DType::kU8), ""},
      {"a scale of 0", codes(0, 1, DType::kU8), ""},
      {"a scale that is no number", codes(std::nan(""), 1, DType::kU8), ""},
      {"an infinite scale", codes(1e39, 1, DType::kU8), ""},
      {"a scale without a reciprocal", codes(1e-40, 1, DType::kU8), ""},
      {"codes of codes",
       [](Fixture& f) { return f.b.quantize(f.of(DType::kU8, {2}), 1, 0, DType::kU8); }, ""},
      {"codes of halves",
       [](Fixture& f) { return f.b.quantize(f.of(DType::kBF16, {2}), 1, 0, DType::kU8); }, "u8[2]"},
      {"values of bytes", values(DType::kU8, 0.5, 3), "f32[2,3]"},
      {"values without a scale", values(DType::kU8, 0, 3), ""},
      {"values of nothing", [](Fixture& f) { return f.b.dequantize(ValueId{}, 0.5, 3); }, ""},
      {"the dtype of values is stated",
       [](Fixture& f) {
         const ValueId x = f.of(DType::kU8, {2});
         return f.b.emit(Op::kDequantize, {x, 0.5, IntArg(3), IntArg(0), IntArg(255), DType::kU8,
                                           std::monostate{}})[0];
       },
       ""},
      {"codes are all of the dtype",
       [](Fixture& f) {
         return f.b.emit(Op::kQuantize,
                         {f.f32({2}), 0.5, IntArg(3), IntArg(0), IntArg(254), DType::kU8})[0];
       },
       ""},
      {"a fallback is a copy",
       [](Fixture& f) {
         return f.b.fallback(f.of(DType::kU16, {1, f.t}));
       },
       "u16[1,T]"},
  });
}

}  // namespace
}  // namespace ferry::graph::builder_test
