// Inference of the builder for attention, the delta rule and codes.
#include <gtest/gtest.h>

#include "graph/builder.h"
#include "tests/graph/builder_cases.h"

namespace ferry::graph::builder_fused_test {
namespace {

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
  check({
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
}  // namespace ferry::graph::builder_fused_test
