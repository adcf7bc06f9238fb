// Attention gives the same bits whether the columns that its mask hides are computed or not, and
// programs whose shapes do not fit are refused as they are when they are executed as stated.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/runner/op_runner.h"

namespace ferry::runner::hidden_columns_test {
namespace {

constexpr int64_t kDim = 8;

Values some(const Shape& shape, double seed) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  Values values{DType::kF32, shape};
  for (int64_t i = 0; i < n; ++i) {
    values.values.push_back(std::sin(seed + 0.7 * static_cast<double>(i)));
  }
  return values;
}

struct Sizes {
  int64_t heads = 2, groups = 3, tokens = 1, past = 300;
  // Heads of the values; the weights are regrouped to them.
  int64_t value_heads = 2;
  int64_t query_dim = kDim;  // that of the keys is kDim
  int attentions = 1;
  bool products_in_reverse = false;
  int64_t columns() const { return past + tokens; }
  int64_t rows() const { return groups * tokens; }
};

// Attentions of a program that share a mask. Memory is planned tensor by tensor.
struct Program {
  Program(const Sizes& sizes, const std::vector<double>& mask) : s(sizes) {
    mask_id = program.constant({DType::kF32, {1, 1, s.tokens, s.columns()}, mask});
    program.method().outputs = {};
    std::vector<std::pair<int32_t, int32_t>> products;
    for (int i = 0; i < s.attentions; ++i) products.push_back(scores_and_values(i));
    if (s.products_in_reverse) std::reverse(products.begin(), products.end());
    for (const auto& [weights, values] : products) {
      const int32_t out = program.planned(DType::kF32, {s.value_heads, value_rows(), kDim});
      program.call("aten::bmm.out", {weights, values, out});
      program.method().outputs.push_back(out);
    }
  }

  int64_t value_rows() const { return s.heads * s.rows() / s.value_heads; }

  int32_t view(int32_t of, const Shape& shape) {
    const int32_t view = program.planned(DType::kF32, shape);
    program.tensor(view).allocation = program.tensor(of).allocation;
    program.call("executorch_prim::et_view.default", {of, program.int_list(shape), view});
    return view;
  }
  // Returns a cache, which is an input, joined with new columns or rows.
  int32_t joined(const Shape& past, const Shape& added, const Shape& whole, int64_t dim,
                 double seed) {
    const int32_t cache = program.unplanned(DType::kF32, past);
    caches.push_back(some(past, seed));
    program.method().inputs.push_back(cache);
    const int32_t out = program.planned(DType::kF32, whole);
    program.call("aten::cat.out",
                 {program.add(pte::TensorList{{cache, program.constant(some(added, seed + 1))}}),
                  program.add(dim), out});
    return view(out, {whole[1], whole[2], whole[3]});
  }

  std::pair<int32_t, int32_t> scores_and_values(int index) {
    const double seed = 10.0 * index;
    const int32_t query = program.constant(some({s.heads, s.rows(), s.query_dim}, seed));
    const int32_t keys = joined({1, s.heads, kDim, s.past}, {1, s.heads, kDim, s.tokens},
                                {1, s.heads, kDim, s.columns()}, 3, seed + 2);
    const int32_t scores = program.planned(DType::kF32, {s.heads, s.rows(), s.columns()});
    program.call("aten::bmm.out", {query, keys, scores});
    const Shape grouped = {s.heads, s.groups, s.tokens, s.columns()};
    const int32_t masked = program.planned(DType::kF32, grouped);
    program.call("aten::add.out",
                 {view(scores, grouped), mask_id, program.add(int64_t{1}), masked});
    const int32_t softmax = program.planned(DType::kF32, grouped);
    program.call("aten::_softmax.out",
                 {masked, program.add(int64_t{3}), program.add(false), softmax});
    const int32_t weights = view(softmax, {s.value_heads, value_rows(), s.columns()});
    const int32_t values =
        joined({1, s.value_heads, s.past, kDim}, {1, s.value_heads, s.tokens, kDim},
               {1, s.value_heads, s.columns(), kDim}, 2, seed + 4);
    softmaxes.push_back(softmax);
    return {weights, values};
  }

  Method load(bool literal) { return *program.load({.poison = true, .literal = literal}); }
  Status run(Method& method) {
    std::vector<std::vector<std::byte>> bytes;
    for (size_t i = 0; i < caches.size(); ++i) {
      bytes.push_back(encode(caches[i]));
      EXPECT_TRUE(method.set_input(i, {DType::kF32, caches[i].shape, bytes.back()}));
    }
    return method.execute();
  }
  std::vector<double> outputs(Method& method) {
    const Status status = run(method);
    EXPECT_TRUE(status) << status.error().message;
    std::vector<double> all;
    for (size_t i = 0; i < method.output_count(); ++i) {
      const Values values = decode(method.output(i));
      all.insert(all.end(), values.values.begin(), values.values.end());
    }
    return all;
  }

  Sizes s;
  ProgramBuilder program;
  int32_t mask_id = 0;
  std::vector<int32_t> softmaxes;
  std::vector<Values> caches;
};

// Each token sees the first `past` columns and its predecessors in the call.
std::vector<double> causal(const Sizes& s, int64_t past) {
  std::vector<double> mask;
  for (int64_t t = 0; t < s.tokens; ++t) {
    for (int64_t c = 0; c < s.columns(); ++c) {
      mask.push_back(c < past || (c >= s.past && c - s.past <= t) ? 0 : -65535);
    }
  }
  return mask;
}

// Returns whether every column of the softmax is computed, or in its stated form.
bool computes_all(Program& program, Method& method) {
  const Values weights = decode(*method.value(program.softmaxes.front()));
  return std::ranges::none_of(weights.values, [](double value) { return std::isnan(value); });
}

void expect_left_out(const Sizes& sizes, const std::vector<double>& mask) {
  Program program(sizes, mask);
  Method stated = program.load(true), method = program.load(false);
  for (int call = 0; call < 2; ++call) {
    EXPECT_EQ(program.outputs(method), program.outputs(stated));
  }
  EXPECT_TRUE(computes_all(program, stated));
  EXPECT_FALSE(computes_all(program, method));
}

TEST(HiddenColumns, OfAFewTokensAreLeftOut) {
  for (const int64_t past : {0, 1, 65, 100}) {
    const Sizes sizes;
    expect_left_out(sizes, causal(sizes, past));
  }
}

TEST(HiddenColumns, OfManyTokensAreLeftOut) {
  for (const int64_t tokens : {20, 70, 130}) {
    for (const int64_t past : {0, 100, 299}) {
      const Sizes sizes{.tokens = tokens};
      expect_left_out(sizes, causal(sizes, past));
    }
  }
}

// More ranges than SeenColumns holds, with gaps of whole steps between some of them.
TEST(HiddenColumns, InManyRangesAreLeftOut) {
  const Sizes sizes{.past = 64 * 60};
  std::vector<double> mask(static_cast<size_t>(sizes.columns()), -65535);
  for (size_t c = 0; c < mask.size(); c += c < 1000 ? 32 : 192) mask[c] = 0;
  expect_left_out(sizes, mask);
}

TEST(HiddenColumns, OfAttentionsThatShareAMaskAreLeftOutInAnyOrder) {
  for (const int64_t tokens : {1, 40}) {
    for (const bool reverse : {false, true}) {
      const Sizes sizes{.tokens = tokens, .attentions = 3, .products_in_reverse = reverse};
      expect_left_out(sizes, causal(sizes, 10));
    }
  }
}

// The mask differs in each execution, so what was found of it must not last.
TEST(HiddenColumns, AreFoundInEachExecution) {
  const Sizes sizes{.tokens = 30};
  Program program(sizes, causal(sizes, 10));
  pte::Tensor& mask = program.program.tensor(program.mask_id);
  mask.data_index = 0;
  program.program.method().inputs.push_back(program.mask_id);
  Method stated = program.load(true), method = program.load(false);
  for (const int64_t past : {10, 290, 0}) {
    std::vector<std::vector<double>> outputs;
    const std::vector<std::byte> bytes =
        encode({DType::kF32, {1, 1, sizes.tokens, sizes.columns()}, causal(sizes, past)});
    for (Method* each : {&stated, &method}) {
      ASSERT_TRUE(each->set_input(2, {DType::kF32, {1, 1, sizes.tokens, sizes.columns()}, bytes}));
      outputs.push_back(program.outputs(*each));
    }
    EXPECT_EQ(outputs[0], outputs[1]) << past;
  }
}

// A row that shows nothing gives each column a weight, and so do columns that are lowered a little.
TEST(HiddenColumns, ThatHaveWeightAreComputed) {
  // Attention of regrouped heads is computed step by step, so that its steps can be seen.
  for (const int64_t value_heads : {Sizes().value_heads, int64_t{1}}) {
    const Sizes sizes{.tokens = 2, .value_heads = value_heads};
    for (const double lowered : {-20.0, -65535.0}) {
      std::vector<double> mask = causal(sizes, 5);
      std::fill(mask.begin(), mask.begin() + static_cast<ptrdiff_t>(sizes.columns()), lowered);
      Program program(sizes, mask);
      Method stated = program.load(true), method = program.load(false);
      EXPECT_EQ(program.outputs(method), program.outputs(stated));
      if (value_heads == 1) {
        EXPECT_TRUE(computes_all(program, method));
      }
    }
  }
}

TEST(HiddenColumns, AreComputedForAnObserver) {
  const Sizes sizes{.tokens = 40};
  Program program(sizes, causal(sizes, 10));
  Method stated = program.load(true), method = program.load(false);
  std::vector<double> seen;
  ASSERT_TRUE(method.observe(program.softmaxes.front(),
                             [&](const TensorView& view) { seen = decode(view).values; }));
  EXPECT_EQ(program.outputs(method), program.outputs(stated));
  EXPECT_EQ(seen, decode(*stated.value(program.softmaxes.front())).values);
}

// The values have other heads than the keys: the products do not go head by head.
TEST(HiddenColumns, OfRegroupedHeadsStayInTheirMemory) {
  for (const int64_t value_heads : {1, 3}) {
    for (const int64_t tokens : {1, 40}) {
      const Sizes sizes{.tokens = tokens, .value_heads = value_heads};
      Program program(sizes, causal(sizes, 10));
      Method stated = program.load(true), method = program.load(false);
      EXPECT_EQ(program.outputs(method), program.outputs(stated));
    }
  }
}

TEST(HiddenColumns, OfProductsThatDoNotFitAreRefused) {
  for (const int64_t query_dim : {kDim - 1, int64_t{100'000}}) {
    const Sizes sizes{.tokens = 20, .query_dim = query_dim};
    Program program(sizes, causal(sizes, 10));
    Method method = program.load(false);
    const Status status = program.run(method);
    ASSERT_FALSE(status);
    EXPECT_NE(status.error().message.find("shape mismatch"), std::string::npos)
        << status.error().message;
  }
}

}  // namespace
}  // namespace ferry::runner::hidden_columns_test
