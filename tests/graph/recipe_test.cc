// Recipes: any tile of any recipe equals the result of computing it element by element.

#include "graph/recipe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/graph/random_source.h"

namespace ferry::graph::recipe_test {
namespace {

// Computes the whole result element by element.
std::vector<std::byte> naive(const Recipe& recipe, const MemorySource& source) {
  std::vector<std::byte> out;
  size_t position = 0;
  for (const StridedPiece& piece : recipe.pieces) {
    std::vector<size_t> elements;
    for_each_run(piece, [&](int64_t offset, int64_t count) {
      for (int64_t i = 0; i < count; ++i) elements.push_back(static_cast<size_t>(offset + i));
    });
    for (const size_t index : elements) {
      float x = element_of(source, piece.tensor, index);
      for (const Step& step : recipe.steps) {
        if (step.kind == Step::Kind::kAdd) x = x + static_cast<float>(step.value);
        if (step.kind == Step::Kind::kMul) x = x * static_cast<float>(step.value);
        if (step.kind == Step::Kind::kNegExp) {
          x = -static_cast<float>(std::exp(static_cast<double>(x)));
        }
        if (step.kind == Step::Kind::kSmooth) {
          const auto columns = static_cast<size_t>(recipe.output().shape.back());
          x = x * (*step.factors)[step.by_rows ? position / columns : position % columns];
        }
      }
      ++position;
      append(out, recipe.output().dtype, x);
    }
  }
  return out;
}

// Returns runs, transposes and slices of tensors of `rows` times `width` elements.
StridedPiece random_piece(Random& random, size_t tensor, int64_t rows, int64_t width) {
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random.below(static_cast<uint64_t>(n)));
  };
  const int64_t row = below(rows), column = below(width);
  const StridedAxis down = {1 + below(rows - row), width}, along = {1 + below(width - column), 1};
  StridedPiece piece{.tensor = tensor, .offset = row * width + column};
  const bool turned = random.below(2) == 0;
  add_axis(piece, turned ? along : down);
  add_axis(piece, turned ? down : along);
  return piece;
}

Recipe random_recipe(Random& random, const MemorySource& source, int64_t rows, int64_t width) {
  std::vector<StridedPiece> pieces;
  int64_t count = 0;
  for (uint64_t left = 1 + random.below(5); left > 0; --left) {
    pieces.push_back(random_piece(random, random.below(source.entries().size()), rows, width));
    count += pieces.back().count();
  }
  Recipe recipe = make_recipe(source, std::move(pieces), {count}, "made").value();
  if (random.below(2) == 0) recipe.apply({.kind = Step::Kind::kAdd, .value = 1});
  if (random.below(3) == 0) recipe.apply({.kind = Step::Kind::kMul, .value = 0.37});
  if (random.below(3) == 0) recipe.apply({.kind = Step::Kind::kNegExp});
  if (random.below(3) > 0) recipe.cast(kDTypes[random.below(3)]);
  if (random.below(3) == 0) {
    const int64_t columns = count % 3 == 0 ? count / 3 : count;
    recipe.output().shape = {count / columns, columns};
    const auto factors_of = [](int64_t size) {
      std::vector<float> factors;
      for (int64_t i = 0; i < size; ++i) factors.push_back(0.5f + static_cast<float>(i % 7));
      return std::make_shared<const std::vector<float>>(std::move(factors));
    };
    recipe.smooth(factors_of(columns));
    if (random.below(2) == 0) recipe.smooth_rows(factors_of(count / columns));
  }
  return recipe;
}

TEST(Recipe, TilesOfRandomRecipesEqualTheWhole) {
  Random random{1};
  for (int round = 0; round < 600; ++round) {
    MemorySource source;
    const DType from = kDTypes[random.below(3)];
    const auto rows = static_cast<int64_t>(1 + random.below(9));
    const auto width = static_cast<int64_t>(4 * (1 + random.below(4)));
    const uint64_t kind = random.below(4);  // plain, in blocks, both, or two dtypes
    for (int i = 0; i < 3; ++i) {
      if (kind == 1 || (kind == 2 && i == 1)) {
        add_toy(source, random, {rows, width});
      } else {
        add_random(source, random, kind == 3 ? kDTypes[i] : from, {rows, width});
      }
    }
    const Recipe recipe = random_recipe(random, source, rows, width);
    const std::vector<std::byte> expected = naive(recipe, source);
    ASSERT_EQ(recipe.output().bytes(), expected.size());
    std::vector<std::byte> result(expected.size());
    const uint64_t size = static_cast<uint64_t>(dtype_bytes(recipe.output().dtype));
    for (uint64_t done = 0; done < result.size();) {
      const uint64_t tile = std::min<uint64_t>((1 + random.below(11)) * size, result.size() - done);
      const Status status =
          materialize(recipe, source, done, std::span(result).subspan(done, tile));
      ASSERT_TRUE(status.has_value()) << status.error().message;
      done += tile;
    }
    EXPECT_EQ(result, expected) << round;
  }
}

TEST(Recipe, LongTensorsAreConvertedInPieces) {
  Random random{2};
  MemorySource source;
  const size_t plain = add_random(source, random, DType::kBF16, {3, 30000});
  const size_t blocks = add_toy(source, random, {300, 400});
  for (const size_t entry : {plain, blocks}) {
    Recipe recipe = whole_tensor(source, entry);
    recipe.cast(DType::kF16);
    std::vector<std::byte> result(recipe.output().bytes());
    ASSERT_TRUE(materialize(recipe, source, 0, result).has_value());
    EXPECT_EQ(result, naive(recipe, source));
    // The transpose of the tensor is gathered first, and then converted in pieces.
    const Shape shape = source.entries()[entry].shape;
    recipe.pieces = {{.tensor = entry, .axes = {{shape[1], 1}, {shape[0], shape[1]}}}};
    ASSERT_TRUE(materialize(recipe, source, 0, result).has_value());
    EXPECT_EQ(result, naive(recipe, source));
  }
}

TEST(Recipe, AnEntryAsItIsIsCopied) {
  Random random{3};
  MemorySource source;
  add_random(source, random, DType::kF16, {4, 5});
  const Recipe recipe = whole_tensor(source, 0);
  EXPECT_TRUE(recipe.is_copy());
  std::vector<std::byte> result(recipe.output().bytes());
  ASSERT_TRUE(materialize(recipe, source, 0, result).has_value());
  EXPECT_EQ(result, source.data(0));
}

TEST(Recipe, NaNsAreCopiedBitForBit) {
  MemorySource source;
  // A floating-point register would change this signalling NaN.
  std::vector<std::byte> bytes(4, std::byte{0xff});
  bytes[1] = std::byte{0x7c};
  source.add(DType::kF16, {2}, bytes);
  std::vector<std::byte> result(4);
  ASSERT_TRUE(materialize(whole_tensor(source, 0), source, 0, result).has_value());
  EXPECT_EQ(result, bytes);
}

TEST(Recipe, ACastIsTheLastStepAndOnlyOne) {
  Random random{5};
  MemorySource source;
  add_random(source, random, DType::kBF16, {4, 4});
  add_toy(source, random, {4, 4});
  Recipe plain = whole_tensor(source, 0);
  plain.cast(DType::kF32);
  EXPECT_EQ(plain.steps, (std::vector<Step>{{.kind = Step::Kind::kCast, .dtype = DType::kF32}}));
  plain.cast(DType::kBF16);
  EXPECT_TRUE(plain.is_copy());
  plain.apply({.kind = Step::Kind::kAdd, .value = -1});
  plain.cast(DType::kF32);
  EXPECT_EQ(plain.steps.size(), 1u);  // arithmetic gives f32 already
  Recipe decoded = whole_tensor(source, 1);
  EXPECT_EQ(decoded.steps, std::vector<Step>{{.kind = Step::Kind::kDecode}});
  decoded.cast(DType::kF16);
  EXPECT_EQ(decoded.steps.size(), 2u);
  EXPECT_EQ(step_name(decoded.steps[0]), "decode");
  EXPECT_EQ(step_name(decoded.steps[1]), "cast f16");
  EXPECT_EQ(step_name(plain.steps[0]), "add -1");
}

TEST(Recipe, FactorsOfColumnsComeBeforeTheCastOrTheCodes) {
  Random random{5};
  MemorySource source;
  add_random(source, random, DType::kBF16, {4, 32});
  const auto factors = std::make_shared<const std::vector<float>>(32, 2.0f);
  Recipe cast = whole_tensor(source, 0);
  cast.cast(DType::kF32);
  cast.smooth(factors);
  EXPECT_EQ(text_of(cast, source), "#0 bf16 [0, 128:1] | smooth | cast f32");
  Recipe coded = whole_tensor(source, 0);
  ASSERT_TRUE(coded.quantize({.bits = 8}, "w"));
  const Recipe before = coded;
  coded.smooth(factors);
  EXPECT_EQ(text_of(coded, source), "#0 bf16 [0, 128:1] | smooth | quantize i8 row f32 bf16_first");
  // Factors of two change the scales, and no code.
  const auto rows = [&](const Recipe& recipe) {
    std::vector<std::byte> codes(128), scales(16);
    const std::span<std::byte> outs[] = {codes, scales};
    EXPECT_TRUE(materialize_rows(recipe, source, 0, 4, outs));
    return std::pair(codes, scales);
  };
  EXPECT_EQ(rows(coded).first, rows(before).first);
  EXPECT_NE(rows(coded).second, rows(before).second);
  for (const bool by_rows : {false, true}) {
    Recipe plain = whole_tensor(source, 0);
    const auto wrong = std::make_shared<const std::vector<float>>(by_rows ? 3 : 31, 2.0f);
    by_rows ? plain.smooth_rows(wrong) : plain.smooth(wrong);
    std::vector<std::byte> out(plain.output().bytes());
    EXPECT_EQ(materialize(plain, source, 0, out).error().code, ErrorCode::kInternal);
  }
}

TEST(Recipe, FactorsOfRowsAreThoseOfTheRowsThatAreMade) {
  Random random{6};
  MemorySource source;
  add_random(source, random, DType::kBF16, {4, 32});
  Recipe recipe = whole_tensor(source, 0);
  ASSERT_TRUE(recipe.quantize({.bits = 8}, "w"));
  const auto scales_from = [&](int64_t first) {
    std::vector<std::byte> codes(static_cast<size_t>(4 - first) * 32);
    std::vector<float> scales(static_cast<size_t>(4 - first));
    const std::span<std::byte> outs[] = {codes, std::as_writable_bytes(std::span(scales))};
    EXPECT_TRUE(materialize_rows(recipe, source, first, 4 - first, outs));
    return scales;
  };
  const std::vector<float> before = scales_from(0);
  recipe.smooth_rows(
      std::make_shared<const std::vector<float>>(std::vector<float>{1.0f, 2.0f, 4.0f, 8.0f}));
  EXPECT_EQ(text_of(recipe, source),
            "#0 bf16 [0, 128:1] | smooth_rows | quantize i8 row f32 bf16_first");
  const std::vector<float> after = scales_from(1);
  for (size_t i = 0; i < after.size(); ++i) {
    EXPECT_EQ(after[i], before[i + 1] * static_cast<float>(2 << i)) << i;
  }
}

TEST(Recipe, LogUndoesTheNegativeExponential) {
  MemorySource source;
  std::vector<std::byte> bytes;
  for (const float x : {-1.0F, -std::exp(3.0F), -0.25F}) append(bytes, DType::kF32, x);
  source.add(DType::kF32, {3}, bytes);
  Recipe recipe = whole_tensor(source, 0);
  recipe.apply({.kind = Step::Kind::kLogNegated});
  std::vector<std::byte> result(bytes.size());
  ASSERT_TRUE(materialize(recipe, source, 0, result).has_value());
  EXPECT_EQ(element(result, DType::kF32, 0), 0.0F);
  EXPECT_NEAR(element(result, DType::kF32, 1), 3.0F, 1e-6);
  EXPECT_EQ(element(result, DType::kF32, 2), static_cast<float>(std::log(0.25)));
}

TEST(Recipe, SourcesAreNamedOnce) {
  Random random{6};
  MemorySource source;
  for (int i = 0; i < 6; ++i) add_random(source, random, DType::kF32, {2});
  Recipe recipe = whole_tensor(source, 1);
  EXPECT_EQ(source_names(recipe, source), "tensor1");
  recipe.pieces = {run_piece(3, 0, 1), run_piece(0, 0, 2), run_piece(3, 1, 1)};
  EXPECT_EQ(entries_of(recipe), (std::vector<size_t>{3, 0}));
  EXPECT_EQ(source_names(recipe, source), "tensor3 + tensor0");
  for (size_t i = 1; i < 6; ++i) recipe.pieces.push_back(run_piece(i, 0, 1));
  EXPECT_EQ(source_names(recipe, source), "tensor3 + tensor0 + tensor1 + tensor2 + 2 more");
}

TEST(Recipe, IsWrittenInPlainWords) {
  Random random{8};
  MemorySource source;
  add_random(source, random, DType::kF16, {4, 4});
  add_toy(source, random, {4, 4});
  Recipe recipe = make_recipe(source,
                              {run_piece(1, 4, 8),
                               {.tensor = 0, .offset = 0, .axes = {{4, 1}, {3, 4}}},
                               run_piece(1, 0, 1)},
                              {21}, "made")
                      .value();
  recipe.apply({.kind = Step::Kind::kAdd, .value = 1});
  recipe.cast(DType::kBF16);
  EXPECT_EQ(text_of(recipe, source),
            "#0 toy [4, 8:1] + #1 f16 [0, 4:1, 3:4] + #0 toy [0] | decode | add 1 | cast bf16");
  EXPECT_EQ(text_of(whole_tensor(source, 0), source), "#0 f16 [0, 16:1]");
}

TEST(Recipe, StepsAreWrittenWithAllDigits) {
  const double root = std::sqrt(128.0);
  const std::string text = step_name({.kind = Step::Kind::kMul, .value = root});
  EXPECT_EQ(text.substr(0, 4), "mul ");
  EXPECT_EQ(std::stod(text.substr(4)), root);
  EXPECT_EQ(step_name({.kind = Step::Kind::kMul, .value = 2}), "mul 2");
}

TEST(Recipe, PiecesThatDoNotFitAreRefused) {
  Random random{7};
  MemorySource source;
  add_random(source, random, DType::kF32, {4, 2});
  add_random(source, random, DType::kF16, {4, 2});
  source.add(DType::kI32, {2}, std::vector<std::byte>(8));
  const auto error_of = [&](std::vector<StridedPiece> pieces, Shape shape) {
    const auto made = make_recipe(source, std::move(pieces), std::move(shape), "made");
    return made ? "" : made.error().message;
  };
  EXPECT_EQ(error_of({run_piece(0, 1, 7)}, {7}), "");
  EXPECT_EQ(error_of({run_piece(0, 0, 9)}, {9}),
            "memory: 'tensor0' [4, 2] has fewer elements than 'made' needs of it");
  EXPECT_EQ(error_of({{.tensor = 0, .offset = -1}}, {1}),
            "memory: 'tensor0' [4, 2] has fewer elements than 'made' needs of it");
  EXPECT_EQ(error_of({run_piece(0, 0, 8)}, {4}),
            "memory: 'tensor0' gives 8 elements, but 'made' [4] is expected");
  EXPECT_EQ(error_of({run_piece(0, 0, 8), run_piece(2, 0, 2)}, {10}),
            "memory: 'tensor2' is i32, expected f32, f16 or bf16");
  EXPECT_EQ(
      make_recipe(source, {run_piece(0, 0, 2), run_piece(1, 0, 2)}, {4}, "made")->output().dtype,
      DType::kF32);
}

TEST(Recipe, RankZeroIsOneRow) {
  MemorySource source;
  std::vector<std::byte> bytes;
  append(bytes, DType::kF32, 2.5F);
  source.add(DType::kF32, {}, bytes);
  Recipe recipe = whole_tensor(source, 0);
  EXPECT_EQ(recipe.pieces, (std::vector<StridedPiece>{run_piece(0, 0, 1)}));
  EXPECT_EQ(recipe.output().bytes(), 4U);
  recipe.apply({.kind = Step::Kind::kAdd, .value = 1});
  std::vector<std::byte> result(4);
  ASSERT_TRUE(materialize(recipe, source, 0, result).has_value());
  EXPECT_EQ(element(result, DType::kF32, 0), 3.5F);
}

TEST(Recipe, NegativeExponential) {
  MemorySource source;
  std::vector<std::byte> bytes;
  append(bytes, DType::kF32, 0.0F);
  append(bytes, DType::kF32, std::log(16.0F));
  source.add(DType::kF32, {2}, bytes);
  Recipe recipe = whole_tensor(source, 0);
  recipe.apply({.kind = Step::Kind::kNegExp});
  std::vector<std::byte> result(8);
  ASSERT_TRUE(materialize(recipe, source, 0, result).has_value());
  EXPECT_EQ(element(result, DType::kF32, 0), -1.0F);
  EXPECT_NEAR(element(result, DType::kF32, 1), -16.0F, 1e-5);
}

// expf() differs between C libraries in the last bit. The nearest f32 of the exact value does not.
TEST(Recipe, ExponentialsAreTheNearestFloats) {
  constexpr size_t kCount = 20000;
  MemorySource source;
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < kCount; ++i) {
    append(bytes, DType::kF32, -9.0F + static_cast<float>(i) * 0.001F);
  }
  source.add(DType::kF32, {static_cast<int64_t>(kCount)}, bytes);
  Recipe recipe = whole_tensor(source, 0);
  recipe.apply({.kind = Step::Kind::kNegExp});
  std::vector<std::byte> result(bytes.size());
  ASSERT_TRUE(materialize(recipe, source, 0, result).has_value());
  for (size_t i = 0; i < kCount; ++i) {
    const float x = element(bytes, DType::kF32, i);
    const auto exact = static_cast<float>(std::exp(static_cast<long double>(x)));
    EXPECT_EQ(element(result, DType::kF32, i), -exact) << x;
  }
}

TEST(Recipe, AnEmptyTensorHasNoBytes) {
  MemorySource source;
  source.add(DType::kF32, {0, 4}, {});
  Recipe recipe = whole_tensor(source, 0);
  recipe.cast(DType::kF16);
  EXPECT_EQ(recipe.output().bytes(), 0U);
  EXPECT_TRUE(materialize(recipe, source, 0, {}).has_value());
}

TEST(Recipe, WhatTheSourceDoesNotHaveIsAnError) {
  Random random{4};
  MemorySource source;
  add_random(source, random, DType::kF32, {4, 2});
  const Recipe good = whole_tensor(source, 0);
  std::vector<std::byte> tile(8);
  ASSERT_TRUE(materialize(good, source, 24, tile).has_value());

  const auto fails = [&](const Recipe& recipe, uint64_t offset) {
    return !materialize(recipe, source, offset, tile).has_value();
  };
  EXPECT_TRUE(fails(good, 28)) << "behind the end";
  EXPECT_TRUE(fails(good, UINT64_MAX - 3)) << "far behind the end";
  EXPECT_TRUE(fails(good, 2)) << "within an element";
  Recipe recipe = good;
  recipe.pieces = {run_piece(1, 0, 8)};
  EXPECT_TRUE(fails(recipe, 0)) << "no such entry";
  recipe.pieces = {run_piece(0, 1, 8)};
  EXPECT_TRUE(fails(recipe, 0)) << "too many elements";
  recipe.pieces = {run_piece(0, -1, 8)};
  EXPECT_TRUE(fails(recipe, 0)) << "negative offset";
  recipe.pieces = {{.tensor = 0, .axes = {{8, -1}}}};
  EXPECT_TRUE(fails(recipe, 0)) << "negative stride";
  recipe.pieces = {run_piece(0, 3, std::numeric_limits<int64_t>::max())};
  EXPECT_TRUE(fails(recipe, 0)) << "overflow";
  recipe.pieces = {run_piece(0, 0, 2)};
  EXPECT_TRUE(fails(recipe, 8)) << "fewer elements than the shape says";
  recipe = good;
  recipe.source_dtype = recipe.output().dtype = DType::kI32;
  EXPECT_TRUE(fails(recipe, 0)) << "another dtype than the entry";
  recipe = good;
  recipe.output().dtype = DType::kF16;
  EXPECT_TRUE(fails(recipe, 0)) << "another dtype without a cast";
  recipe = good;
  recipe.outputs.push_back({});
  EXPECT_TRUE(fails(recipe, 0)) << "several outputs";
}

TEST(Recipe, IntegersAreCopiedButNotCast) {
  MemorySource source;
  source.add(DType::kI64, {1}, std::vector<std::byte>(8, std::byte{7}));
  Recipe recipe = whole_tensor(source, 0);
  std::vector<std::byte> result(8);
  EXPECT_TRUE(materialize(recipe, source, 0, result).has_value());
  EXPECT_EQ(result, source.data(0));
  recipe.cast(DType::kF32);
  const Status status = materialize(recipe, source, 0, std::span(result).first(4));
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
}

TEST(StateDict, NamesAreUnique) {
  StateDict dict;
  EXPECT_TRUE(dict.add({"a", {}, "x"}).has_value());
  EXPECT_TRUE(dict.add({"b", {}, "y"}).has_value());
  const Status again = dict.add({"a", {}, "z"});
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, ErrorCode::kBadInput);
  EXPECT_EQ(dict.weights().size(), 2U);
  EXPECT_EQ(dict.find("a")->rule, "x");
  EXPECT_EQ(dict.find("c"), nullptr);
}

}  // namespace
}  // namespace ferry::graph::recipe_test
