// Matrix products, convolutions, attention and the gated delta rule, compared with plain loops in
// double.
#include <functional>
#include <limits>
#include <random>

#include "tests/runner/op_cases.h"

namespace ferry::runner::linear_test {
namespace {

constexpr double kTolerance = 1e-5;

// Returns small values that every floating dtype holds exactly, or values in [-1, 1].
Values random_values(Shape shape, uint32_t seed, DType dtype = DType::kF32) {
  Values values{dtype, std::move(shape), {}};
  std::mt19937 random(seed);
  size_t n = 1;
  for (int64_t size : values.shape) n *= static_cast<size_t>(size);
  for (size_t i = 0; i < n; ++i) {
    const int v = static_cast<int>(random() % 33) - 16;
    values.values.push_back(v / 16.0);
  }
  return values;
}

// Computes out[b,i,j] = sum_k a[b,i,k] * b[b,k,j].
Values naive_bmm(const Values& a, const Values& b) {
  const size_t batch = static_cast<size_t>(a.shape[0]), m = static_cast<size_t>(a.shape[1]);
  const size_t k = static_cast<size_t>(a.shape[2]), n = static_cast<size_t>(b.shape[2]);
  Values out{a.dtype, {a.shape[0], a.shape[1], b.shape[2]}, {}};
  for (size_t i = 0; i < batch * m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (size_t p = 0; p < k; ++p) {
        sum += a.values[i * k + p] * b.values[(i / m * k + p) * n + j];
      }
      out.values.push_back(sum);
    }
  }
  return out;
}

Values reshaped(Values values, Shape shape) {
  values.shape = std::move(shape);
  return values;
}

TEST(Matrix, Products) {
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}) {
    const double tolerance = dtype == DType::kBF16 ? 1e-2 : dtype == DType::kF16 ? 1e-3 : 1e-6;
    const Values a = random_values({3, 4, 5}, 1, dtype);
    const Values b = random_values({3, 5, 6}, 2, dtype);
    check_cases({{"aten::bmm.out", {a, b}, {naive_bmm(a, b)}, tolerance}});
    const Values row = random_values({1, 4, 5}, 3, dtype);
    const Values column = random_values({1, 5, 6}, 4, dtype);
    const Values product = reshaped(naive_bmm(row, column), {4, 6});
    const Values m1 = reshaped(row, {4, 5});
    const Values m2 = reshaped(column, {5, 6});
    check_cases({{"aten::mm.out", {m1, m2}, {product}, tolerance}});
    const Values bias = random_values({6}, 5, dtype);
    Values sum = product;
    Values scaled = product;
    for (size_t i = 0; i < sum.values.size(); ++i) {
      sum.values[i] += bias.values[i % 6];
      scaled.values[i] = 2 * product.values[i] + 3 * bias.values[i % 6];
    }
    check_cases({
        {"aten::addmm.out", {bias, m1, m2, integer(1), integer(1)}, {sum}, 2 * tolerance},
        {"aten::addmm.out", {bias, m1, m2, 3.0, 2.0}, {scaled}, 4 * tolerance},
    });
    // linear takes the second factor transposed.
    Values weight{dtype, {6, 5}, {}};
    for (size_t j = 0; j < 6; ++j) {
      for (size_t p = 0; p < 5; ++p) weight.values.push_back(m2.values[p * 6 + j]);
    }
    const Values input = reshaped(m1, {2, 2, 5});
    check_cases({
        {"aten::linear.out", {input, weight, NoValue{}}, {reshaped(product, {2, 2, 6})}, tolerance},
        {"aten::linear.out", {input, weight, bias}, {reshaped(sum, {2, 2, 6})}, 2 * tolerance},
    });
  }
}

TEST(Matrix, ProductsOfIntegersAreExactAndWrap) {
  const double large = 4611686018427387904.0;  // 2^62
  const auto i8 = [](Shape shape, std::vector<double> values) {
    return Values{DType::kI8, std::move(shape), std::move(values)};
  };
  check_cases({
      {"aten::mm.out", {i64({1, 2}, {3, -5}), i64({2, 1}, {7, 11})}, {i64({1, 1}, {-34})}},
      {"aten::mm.out", {i64({1, 1}, {large}), i64({1, 1}, {4})}, {i64({1, 1}, {0})}},
      {"aten::bmm.out",
       {i8({2, 1, 1}, {100, 2}), i8({2, 1, 2}, {2, 1, 3, 4})},
       {i8({2, 1, 2}, {-56, 100, 6, 8})}},
  });
}

TEST(Matrix, ProductsOfNothingAreZero) {
  check_cases({
      {"aten::mm.out", {f32({2, 0}, {}), f32({0, 1}, {})}, {f32({2, 1}, {0, 0})}},
      {"aten::linear.out",
       {f32({2, 0}, {}), f32({1, 0}, {}), f32({1}, {3})},
       {f32({2, 1}, {3, 3})}},
  });
}

TEST(Matrix, ShapesThatDoNotFitAreRefused) {
  const Values a = random_values({2, 3}, 1);
  check_refused({
      {"aten::mm.out", {a, a}, {a}, "shape mismatch: value 0"},
      {"aten::bmm.out", {a, a}, {a}, "must have rank 3"},
      {"aten::bmm.out",
       {random_values({2, 3, 4}, 1), random_values({1, 4, 3}, 1)},
       {f32({2, 3, 3}, {})},
       "shape mismatch: value 0"},
      {"aten::linear.out", {a, random_values({2, 4}, 1), NoValue{}}, {a}, "shape mismatch"},
      {"aten::linear.out",
       {a, random_values({2, 3}, 1), f32({3}, {1, 2, 3})},
       {f32({2, 2}, {})},
       "must have shape [2]"},
      {"aten::linear.out",
       {a, random_values({2, 3}, 1, DType::kF16), NoValue{}},
       {f32({2, 2}, {})},
       "differ in dtype"},
      {"aten::linear.out",
       {i64({1, 1}, {2}), i64({1, 1}, {2}), NoValue{}},
       {i64({1, 1}, {})},
       "linear of"},
  });
}

struct ConvCase {
  Shape input, weight;  // of rank 3 or 4
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups;
};

Values naive_convolution(const ConvCase& c, const Values& x, const Values& w, const Values& bias) {
  const bool flat = c.input.size() == 3;
  const auto at = [&](const Shape& shape, size_t d) {
    return flat && d == 2 ? 1 : shape[d - (flat && d == 3 ? 1 : 0)];
  };
  const auto value = [&](const std::vector<int64_t>& list, size_t d, int64_t one) {
    return flat ? (d == 0 ? one : list[0]) : list[std::min(d, list.size() - 1)];
  };
  const int64_t in_h = at(c.input, 2), in_w = at(c.input, 3);
  const int64_t k_h = at(c.weight, 2), k_w = at(c.weight, 3);
  const auto out_size = [&](int64_t in, int64_t k, size_t d) {
    return (in + 2 * value(c.padding, d, 0) - value(c.dilation, d, 1) * (k - 1) - 1) /
               value(c.stride, d, 1) +
           1;
  };
  const int64_t out_h = out_size(in_h, k_h, 0), out_w = out_size(in_w, k_w, 1);
  const int64_t outs = c.weight[0], group_in = c.weight[1], group_out = outs / c.groups;
  Values out{
      x.dtype, flat ? Shape{c.input[0], outs, out_w} : Shape{c.input[0], outs, out_h, out_w}, {}};
  for (int64_t b = 0; b < c.input[0]; ++b)
    for (int64_t o = 0; o < outs; ++o)
      for (int64_t y = 0; y < out_h; ++y)
        for (int64_t z = 0; z < out_w; ++z) {
          double sum = bias.values.empty() ? 0 : bias.values[static_cast<size_t>(o)];
          for (int64_t i = 0; i < group_in; ++i)
            for (int64_t ky = 0; ky < k_h; ++ky)
              for (int64_t kx = 0; kx < k_w; ++kx) {
                const int64_t iy = y * value(c.stride, 0, 1) - value(c.padding, 0, 0) +
                                   ky * value(c.dilation, 0, 1);
                const int64_t ix = z * value(c.stride, 1, 1) - value(c.padding, 1, 0) +
                                   kx * value(c.dilation, 1, 1);
                if (iy < 0 || iy >= in_h || ix < 0 || ix >= in_w) continue;
                const int64_t channel = o / group_out * group_in + i;
                sum += x.values[static_cast<size_t>(
                           ((b * c.input[1] + channel) * in_h + iy) * in_w + ix)] *
                       w.values[static_cast<size_t>(((o * group_in + i) * k_h + ky) * k_w + kx)];
              }
          out.values.push_back(sum);
        }
  return out;
}

std::vector<Arg> convolution_args(const ConvCase& c, const Values& x, const Values& w, Arg bias) {
  return {x,     w,         std::move(bias),  ints(c.stride), ints(c.padding), ints(c.dilation),
          false, ints({0}), integer(c.groups)};
}

TEST(Convolution, MatchesPlainLoops) {
  const std::vector<ConvCase> cases = {
      {{1, 6, 9}, {6, 1, 4}, {1}, {0}, {1}, 6},        // depthwise, as in Gated DeltaNet
      {{2, 6, 9}, {6, 1, 4}, {1}, {3}, {1}, 6},        // depthwise with padding
      {{1, 4, 8}, {6, 2, 3}, {2}, {1}, {1}, 2},        // groups and stride
      {{2, 3, 8, 8}, {5, 3, 4, 4}, {4}, {0}, {1}, 1},  // patches of an image
      {{1, 2, 7, 6}, {3, 2, 3, 2}, {2, 1}, {1, 0}, {1, 2}, 1},
      {{1, 4, 5, 5}, {8, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 4},
      {{1, 6, 1, 1}, {5, 6, 1, 1}, {1, 1}, {0, 0}, {1, 1}, 1},  // one position
      {{2, 6, 1, 7}, {5, 6, 1, 1}, {1, 1}, {0, 0}, {1, 1}, 1},  // one position is one patch
      {{2, 6, 3, 2}, {4, 3, 1, 1}, {1}, {0}, {1}, 2},
      {{2, 5, 3}, {7, 5, 1}, {1}, {0}, {1}, 1},
      {{1, 3, 5, 4}, {2, 3, 1, 1}, {2}, {0}, {1}, 1},
      {{1, 3, 2, 2}, {2, 3, 1, 1}, {1, 1}, {1, 0}, {1, 1}, 1},
      {{1, 3, 2, 2}, {4, 3, 2, 2}, {1}, {0}, {1}, 1},  // the whole image is one patch
  };
  for (const ConvCase& c : cases) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const double tolerance = dtype == DType::kBF16 ? 3e-2 : 1e-6;
      const Values x = random_values(c.input, 1, dtype);
      const Values w = random_values(c.weight, 2, dtype);
      const Values bias = random_values({c.weight[0]}, 3, dtype);
      check_cases({
          {"aten::convolution.out",
           convolution_args(c, x, w, NoValue{}),
           {naive_convolution(c, x, w, f32({0}, {}))},
           tolerance},
          {"aten::convolution.out",
           convolution_args(c, x, w, bias),
           {naive_convolution(c, x, w, bias)},
           tolerance},
      });
    }
  }
}

// A token's result has the bits that it has alone, and those of a linear layer.
TEST(Convolution, PointwiseIsLinearToTheBit) {
  const int64_t in = 67, out = 33, tokens = 5;
  Values x = f32({1, in, 1, tokens}, {});
  Values rows = f32({tokens, in}, std::vector<double>(static_cast<size_t>(in * tokens)));
  std::mt19937 random(4);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int64_t i = 0; i < in * tokens; ++i) {
    x.values.push_back(uniform(random));
    rows.values[static_cast<size_t>(i % tokens * in + i / tokens)] = x.values.back();
  }
  Values w = f32({out, in, 1, 1}, {});
  for (int64_t i = 0; i < in * out; ++i) w.values.push_back(uniform(random));
  const ConvCase c = {x.shape, w.shape, {1, 1}, {0, 0}, {1, 1}, 1};
  const auto result = run_op("aten::convolution.out", convolution_args(c, x, w, NoValue{}),
                             {f32({1, out, 1, tokens}, {})});
  ASSERT_TRUE(result) << result.error().message;
  for (int64_t t = 0; t < tokens; ++t) {
    const auto begin = rows.values.begin() + t * in;
    const Values token = f32({1, in, 1, 1}, std::vector<double>(begin, begin + in));
    const auto alone = run_op("aten::convolution.out", convolution_args(c, token, w, NoValue{}),
                              {f32({1, out, 1, 1}, {})});
    const auto linear =
        run_op("aten::linear.out", {reshaped(token, {1, in}), reshaped(w, {out, in}), NoValue{}},
               {f32({1, out}, {})});
    ASSERT_TRUE(alone && linear);
    EXPECT_EQ((*alone)[0].values, (*linear)[0].values);
    for (int64_t o = 0; o < out; ++o) {
      EXPECT_EQ((*result)[0].values[static_cast<size_t>(o * tokens + t)],
                (*alone)[0].values[static_cast<size_t>(o)]);
    }
  }
}

TEST(Convolution, WhatDoesNotFitIsRefused) {
  const Values x = random_values({1, 4, 8}, 1);
  const Values w = random_values({4, 1, 3}, 2);
  const Values out = f32({1, 4, 6}, {});
  const ConvCase good = {{1, 4, 8}, {4, 1, 3}, {1}, {0}, {1}, 4};
  const auto refused = [&](ConvCase c, const std::string& message) {
    check_refused(
        {{"aten::convolution.out", convolution_args(c, x, w, NoValue{}), {out}, message}});
  };
  ConvCase c = good;
  c.groups = 0;
  refused(c, "0 groups");
  c.groups = 2;
  refused(c, "2 groups");
  c = good;
  c.stride = {0};
  refused(c, "of 0");
  c = good;
  c.stride = {};
  refused(c, "empty list");
  c = good;
  c.dilation = {1 << 30};
  refused(c, "is larger than");
  c = good;
  c.padding = {std::numeric_limits<int64_t>::max()};
  refused(c, "stride, padding or dilation");
  std::vector<Arg> transposed = convolution_args(good, x, w, NoValue{});
  transposed[6] = true;
  check_refused({{"aten::convolution.out", transposed, {out}, "cannot take the result's shape"}});
  transposed[8] = int64_t{3};
  check_refused({{"aten::convolution.out", transposed, {out}, "3 groups"}});
}

struct SdpaCase {
  int64_t batch, tokens, heads, kv_heads, dim, context, start;
};

// `allowed(i, j)` is added to the score of query i and key j. Keys from `seen` on are ignored.
Values naive_attention(const SdpaCase& c, const Values& q, const Values& k, const Values& v,
                       double scale, const std::function<double(int64_t, int64_t)>& bias) {
  Values out = q;
  const auto at = [&](const Values& t, int64_t heads, int64_t b, int64_t s, int64_t h, int64_t d) {
    const int64_t length = t.shape[1];
    return t.values[static_cast<size_t>(((b * length + s) * heads + h) * c.dim + d)];
  };
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t i = 0; i < c.tokens; ++i)
      for (int64_t h = 0; h < c.heads; ++h) {
        const int64_t kv = h / (c.heads / c.kv_heads);
        std::vector<double> weight;
        double total = 0;
        for (int64_t j = 0; j < c.context; ++j) {
          double score = bias(i, j);
          if (std::isfinite(score)) {
            double dot = 0;
            for (int64_t d = 0; d < c.dim; ++d) {
              dot += at(q, c.heads, b, i, h, d) * at(k, c.kv_heads, b, j, kv, d);
            }
            score += dot * scale;
          }
          weight.push_back(std::exp(score));
          total += weight.back();
        }
        for (int64_t d = 0; d < c.dim; ++d) {
          double sum = 0;
          for (int64_t j = 0; j < c.context; ++j) {
            if (weight[static_cast<size_t>(j)] == 0) continue;
            sum += weight[static_cast<size_t>(j)] / total * at(v, c.kv_heads, b, j, kv, d);
          }
          out.values[static_cast<size_t>(((b * c.tokens + i) * c.heads + h) * c.dim + d)] = sum;
        }
      }
  return out;
}

constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<Arg> sdpa_args(const Values& q, const Values& k, const Values& v, int64_t start,
                           Arg mask, bool causal, Arg scale) {
  return {q, k, v, integer(start), std::move(mask), 0.0, causal, std::move(scale)};
}

TEST(Attention, CausalOverACacheWithUnwrittenNan) {
  for (const SdpaCase& c : {SdpaCase{1, 3, 4, 2, 8, 10, 4}, SdpaCase{2, 1, 2, 2, 4, 6, 5},
                            SdpaCase{1, 5, 3, 1, 4, 5, 0}}) {
    for (const DType dtype : {DType::kF32, DType::kF16}) {
      const double tolerance = dtype == DType::kF16 ? 2e-3 : kTolerance;
      const Values q = random_values({c.batch, c.tokens, c.heads, c.dim}, 1, dtype);
      Values k = random_values({c.batch, c.context, c.kv_heads, c.dim}, 2, dtype);
      Values v = random_values({c.batch, c.context, c.kv_heads, c.dim}, 3, dtype);
      const size_t row = static_cast<size_t>(c.kv_heads * c.dim);
      for (size_t i = 0; i < k.values.size(); ++i) {
        const int64_t position = static_cast<int64_t>(i / row) % c.context;
        if (position >= c.start + c.tokens) k.values[i] = v.values[i] = std::nan("");
      }
      const auto causal = [&](int64_t i, int64_t j) { return j <= c.start + i ? 0 : -kInf; };
      const Values want =
          naive_attention(c, q, k, v, 1 / std::sqrt(static_cast<double>(c.dim)), causal);
      check_cases({{"llama::custom_sdpa.out",
                    sdpa_args(q, k, v, c.start, NoValue{}, true, NoValue{}),
                    {want},
                    tolerance}});
    }
  }
}

TEST(Attention, WithAMaskAndAScale) {
  const SdpaCase c = {1, 3, 2, 1, 4, 6, 0};
  const Values q = random_values({1, 3, 2, 4}, 1);
  const Values k = random_values({1, 6, 1, 4}, 2);
  const Values v = random_values({1, 6, 1, 4}, 3);
  Values mask = random_values({3, 6}, 4);
  mask.values[2] = mask.values[9] = -kInf;
  const auto bias = [&](int64_t i, int64_t j) {
    return mask.values[static_cast<size_t>(i * 6 + j)];
  };
  const Values want = naive_attention(c, q, k, v, 0.25, bias);
  check_cases({
      {"llama::custom_sdpa.out", sdpa_args(q, k, v, 0, mask, false, 0.25), {want}, kTolerance},
      {"llama::custom_sdpa.out",
       sdpa_args(q, k, v, 0, reshaped(mask, {1, 1, 3, 6}), false, 0.25),
       {want},
       kTolerance},
  });
}

// As the official runtime does.
TEST(Attention, AMaskMayHaveMoreQueriesThanKeys) {
  const SdpaCase c = {1, 5, 2, 1, 4, 2, 0};
  const Values q = random_values({1, 5, 2, 4}, 1);
  const Values k = random_values({1, 2, 1, 4}, 2);
  const Values v = random_values({1, 2, 1, 4}, 3);
  const Values mask = random_values({5, 2}, 4);
  const auto bias = [&](int64_t i, int64_t j) {
    return mask.values[static_cast<size_t>(i * 2 + j)];
  };
  const Values want = naive_attention(c, q, k, v, 0.25, bias);
  check_cases(
      {{"llama::custom_sdpa.out", sdpa_args(q, k, v, 0, mask, false, 0.25), {want}, kTolerance}});
}

TEST(Attention, WhatDoesNotFitIsRefused) {
  const Values q = random_values({1, 3, 4, 4}, 1);
  const Values k = random_values({1, 6, 2, 4}, 2);
  const auto refused = [&](std::vector<Arg> args, const std::string& message) {
    check_refused({{"llama::custom_sdpa.out", std::move(args), {q}, message}});
  };
  refused(sdpa_args(q, k, k, 4, NoValue{}, true, NoValue{}), "3 positions from 4");
  refused(sdpa_args(q, k, k, -1, NoValue{}, true, NoValue{}), "3 positions from -1");
  refused(sdpa_args(q, k, k, std::numeric_limits<int64_t>::max(), NoValue{}, true, NoValue{}),
          "do not fit a context of 6");
  refused(sdpa_args(q, random_values({1, 6, 3, 4}, 2), random_values({1, 6, 3, 4}, 2), 0, NoValue{},
                    true, NoValue{}),
          "shape mismatch: query value 0");
  refused(sdpa_args(q, random_values({1, 6, 0, 4}, 2), random_values({1, 6, 0, 4}, 2), 0, NoValue{},
                    true, NoValue{}),
          "shape mismatch: query value 0");
  refused(sdpa_args(q, k, q, 0, NoValue{}, true, NoValue{}), "must have shape [1, 6, 2, 4]");
  refused(sdpa_args(q, k, k, 0, random_values({6, 3}, 1), false, NoValue{}), "mask");
  refused(sdpa_args(q, k, k, 0, random_values({3, 6}, 1), true, NoValue{}), "both");
}

// Two calls fill a cache. Memory around the rows must not change.
TEST(Attention, UpdateCacheWritesOnlyItsRows) {
  ProgramBuilder program;
  const int32_t cache = program.initialised(f32({2, 4, 1, 2}, std::vector<double>(16, 7)));
  const int32_t unused = program.planned(DType::kF32, {1});
  const int32_t rows = program.constant(f32({2, 2, 1, 2}, {1, 2, 3, 4, 5, 6, 7, 8}));
  program.method().outputs = {cache};
  program.call("llama::update_cache.out", {rows, cache, program.add(int64_t{1}), unused});
  Method method = *program.load();
  ASSERT_TRUE(method.execute());
  EXPECT_EQ(decode(method.output(0)).values,
            (std::vector<double>{7, 7, 1, 2, 3, 4, 7, 7, 7, 7, 5, 6, 7, 8, 7, 7}));
}

TEST(Attention, UpdateCacheBeyondTheContextIsRefused) {
  struct Row {
    Values rows;
    int64_t start;
    std::string message;
  };
  const Values two = random_values({1, 2, 1, 2}, 1);
  for (const Row& row : {Row{two, 3, "2 positions from 3"}, Row{two, -1, "2 positions from -1"},
                         Row{two, std::numeric_limits<int64_t>::max(), "do not fit cache"},
                         Row{random_values({1, 2, 2, 2}, 1), 0, "must have shape"},
                         Row{random_values({2, 2, 1, 2}, 1), 0, "must have shape"},
                         Row{random_values({1, 2, 1, 2}, 1, DType::kF16), 0, "differ in dtype"}}) {
    ProgramBuilder program;
    const int32_t cache = program.planned(DType::kF32, {1, 4, 1, 2});
    program.call("llama::update_cache.out",
                 {program.constant(row.rows), cache, program.add(row.start),
                  program.planned(DType::kF32, {1})});
    Method method = *program.load();
    const Status status = method.execute();
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kBadInput);
    EXPECT_NE(status.error().message.find(row.message), std::string::npos)
        << status.error().message;
  }
}

TEST(Attention, GatedDeltaRuleMatchesTheRecurrence) {
  constexpr int64_t kHeads = 2, kTime = 3, kKey = 4, kValue = 5;
  const Values q = random_values({1, kHeads, kTime, kKey}, 1);
  const Values k = random_values({1, kHeads, kTime, kKey}, 2);
  const Values v = random_values({1, kHeads, kTime, kValue}, 3);
  const Values beta = random_values({1, kHeads, kTime}, 5);
  const Values state = random_values({1, kHeads, kKey, kValue}, 6);
  for (const bool per_key : {false, true}) {
    const Values decay =
        random_values(per_key ? Shape{1, kHeads, kTime, kKey} : Shape{1, kHeads, kTime}, 4);
    Values out = v;
    Values final_state = state;
    for (size_t h = 0; h < kHeads; ++h) {
      double* s = &final_state.values[h * kKey * kValue];
      for (size_t t = 0; t < kTime; ++t) {
        const size_t at = h * kTime + t;
        for (size_t j = 0; j < kValue; ++j) {
          double memory = 0, result = 0;
          for (size_t i = 0; i < kKey; ++i) {
            s[i * kValue + j] *= decay.values[per_key ? at * kKey + i : at];
            memory += k.values[at * kKey + i] * s[i * kValue + j];
          }
          for (size_t i = 0; i < kKey; ++i) {
            s[i * kValue + j] +=
                k.values[at * kKey + i] * beta.values[at] * (v.values[at * kValue + j] - memory);
            result += q.values[at * kKey + i] * s[i * kValue + j];
          }
          out.values[at * kValue + j] = result;
        }
      }
    }
    check_cases({{"llama::gated_delta_rule.out",
                  {q, k, v, decay, beta, state},
                  {out, final_state},
                  kTolerance}});
  }
  // Both names are one operator, and several heads of the query read one state.
  Values wide_q = random_values({1, 2 * kHeads, kTime, kKey}, 7);
  const Values decay = random_values({1, kHeads, kTime}, 4);
  Values wide_out = random_values({1, 2 * kHeads, kTime, kValue}, 8);
  const std::vector<Arg> args = {wide_q, k, v, decay, beta, state};
  const auto wide = run_op("llama::channelwise_gated_delta_rule.out", args, {wide_out, state});
  ASSERT_TRUE(wide) << wide.error().message;
  for (const size_t group : {0, 1}) {
    Values one = q, out = v;
    for (size_t h = 0; h < kHeads; ++h) {
      std::copy_n(&wide_q.values[(2 * h + group) * kTime * kKey], kTime * kKey,
                  &one.values[h * kTime * kKey]);
      std::copy_n(&(*wide)[0].values[(2 * h + group) * kTime * kValue], kTime * kValue,
                  &out.values[h * kTime * kValue]);
    }
    check_cases({{"llama::gated_delta_rule.out",
                  {one, k, v, decay, beta, state},
                  {out, (*wide)[1]},
                  kTolerance}});
  }
  check_refused({
      {"llama::gated_delta_rule.out",
       {random_values({1, 3, kTime, kKey}, 7), k, v, decay, beta, state},
       {wide_out, state},
       "must have shape"},
      {"llama::gated_delta_rule.out", {q, k, v, beta, beta, v}, {v, state}, "must have shape"},
      {"llama::gated_delta_rule.out", {q, v, v, beta, beta, state}, {v, state}, "must have shape"},
      {"llama::gated_delta_rule.out", {q, k, v, q, v, state}, {v, state}, "must have shape"},
  });
}

}  // namespace
}  // namespace ferry::runner::linear_test
