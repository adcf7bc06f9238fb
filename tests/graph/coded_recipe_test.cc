// Recipes of codes and scales: any part of the rows has the bytes that quantising the whole tensor
// gives.
#include <gtest/gtest.h>

#include <array>
#include <limits>

#include "core/thread_pool.h"
#include "graph/recipe.h"
#include "tests/graph/random_source.h"

namespace ferry::graph::coded_recipe_test {
namespace {

using Bytes = std::vector<std::byte>;

constexpr QuantizationScheme kSchemes[] = {
    {.bits = 4, .group = 32, .scale_dtype = DType::kBF16},
    {.bits = 4, .group = 64, .scale_dtype = DType::kBF16},
    {.bits = 4, .group = 0, .scale_dtype = DType::kF32},
    {.bits = 4, .group = 32, .order = NibbleOrder::kHighFirst},
    {.bits = 4, .group = 32, .method = ScaleMethod::kHqq, .rounds = 3},
    {.bits = 8},
    {.bits = 8, .group = 16},
    {.bits = 8, .method = ScaleMethod::kHqq, .rounds = 2},
};

// Returns the f32 values of `recipe` without quantisation.
std::vector<float> values_of(Recipe recipe, const TensorSource& source) {
  recipe.cast(DType::kF32);
  std::vector<float> values(recipe.output().bytes() / sizeof(float));
  EXPECT_TRUE(materialize(recipe, source, 0, std::as_writable_bytes(std::span(values))));
  return values;
}

// Quantises all rows at once.
std::array<Bytes, 2> quantized(const QuantizationScheme& scheme, std::span<const float> values,
                               int64_t columns) {
  const uint64_t rows = values.size() / static_cast<uint64_t>(columns);
  std::array<Bytes, 2> out = {Bytes(rows * scheme.code_bytes(columns)),
                              Bytes(rows * scheme.scale_bytes(columns))};
  quantize_rows(scheme, values, columns, out[0], out[1]);
  return out;
}

// Makes all rows, `step` at a time.
std::array<Bytes, 2> made(const Recipe& recipe, const TensorSource& source, int64_t step) {
  std::array<Bytes, 2> all;
  for (int64_t first = 0; first < row_count(recipe); first += step) {
    const int64_t rows = std::min(step, row_count(recipe) - first);
    std::array<Bytes, 2> part;
    std::array<std::span<std::byte>, 2> spans;
    for (size_t i = 0; i < 2; ++i) {
      part[i].resize(static_cast<uint64_t>(rows) * row_bytes(recipe, i));
      spans[i] = part[i];
    }
    const auto non_finite = materialize_rows(recipe, source, first, rows, spans);
    EXPECT_EQ(non_finite.value_or(1), 0U);
    for (size_t i = 0; i < 2; ++i) all[i].insert(all[i].end(), part[i].begin(), part[i].end());
  }
  return all;
}

void expect_quantized(const Recipe& plain, const TensorSource& source,
                      const QuantizationScheme& scheme, Random& random) {
  Recipe recipe = plain;
  ASSERT_TRUE(recipe.quantize(scheme, "w"));
  const std::string text = step_name(recipe.steps.back());
  const int64_t columns = plain.output().shape.back();
  const auto expected = quantized(scheme, values_of(plain, source), columns);
  for (const int64_t step : {int64_t{1}, int64_t{3}, row_count(recipe)}) {
    EXPECT_EQ(made(recipe, source, step), expected) << text;
  }
  for (size_t output = 0; output < 2; ++output) {
    ASSERT_EQ(recipe.outputs[output].bytes(), expected[output].size()) << text;
    for (int round = 0; round < 8; ++round) {
      const uint64_t from = random.below(expected[output].size());
      Bytes tile(1 + random.below(expected[output].size() - from));
      ASSERT_TRUE(materialize(recipe, source, output, from, tile));
      const auto begin = expected[output].begin() + static_cast<std::ptrdiff_t>(from);
      EXPECT_TRUE(std::equal(tile.begin(), tile.end(), begin)) << text << " at " << from;
    }
  }
}

TEST(CodedRecipe, RowsOfEverySourceAreThoseOfTheWhole) {
  Random random{11};
  MemorySource source;
  for (const DType dtype : kDTypes) add_random(source, random, dtype, {7, 128});
  add_toy(source, random, {7, 128});
  for (size_t entry = 0; entry < source.entries().size(); ++entry) {
    for (const QuantizationScheme& scheme : kSchemes) {
      Recipe recipe = whole_tensor(source, entry);
      expect_quantized(recipe, source, scheme, random);
      recipe.apply({.kind = Step::Kind::kMul, .value = 1.5});
      recipe.cast(DType::kBF16);
      Recipe wide = recipe;  // values are quantised from f32
      wide.cast(DType::kF32);
      expect_quantized(wide, source, scheme, random);
      ASSERT_TRUE(recipe.quantize(scheme, "w"));
      ASSERT_TRUE(wide.quantize(scheme, "w"));
      EXPECT_EQ(recipe, wide);
    }
  }
}

TEST(CodedRecipe, PiecesMayBeStridedAndOfSeveralTensors) {
  Random random{12};
  MemorySource source;
  add_random(source, random, DType::kBF16, {64, 8});  // read as its transpose
  add_random(source, random, DType::kF32, {4, 64});
  add_toy(source, random, {5, 64});
  const Recipe turned =
      make_recipe(source, {{.tensor = 0, .axes = {{8, 1}, {64, 8}}}}, {8, 64}, "t").value();
  const Recipe stacked =
      make_recipe(source, {run_piece(1, 64, 192), run_piece(2, 0, 320), run_piece(1, 0, 64)},
                  {9, 64}, "s")
          .value();
  const Recipe experts =
      make_recipe(source, {run_piece(2, 0, 256), run_piece(1, 0, 256)}, {2, 4, 64}, "e").value();
  for (const QuantizationScheme& scheme : kSchemes) {
    for (const Recipe& recipe : {turned, stacked, experts}) {
      expect_quantized(recipe, source, scheme, random);
    }
  }
}

// The tensors have more values than are quantised at a time.
TEST(CodedRecipe, LongTensorsAreQuantizedInParts) {
  Random random{13};
  MemorySource source;
  add_random(source, random, DType::kF16, {300, 512});
  add_random(source, random, DType::kF16, {2, 70000});
  expect_quantized(whole_tensor(source, 0), source, kSchemes[0], random);
  expect_quantized(whole_tensor(source, 1), source, kSchemes[5], random);
}

TEST(CodedRecipe, OutputsStateWhatIsStored) {
  Random random{14};
  MemorySource source;
  add_random(source, random, DType::kF32, {2, 3, 64});
  const auto outputs_of = [&](const QuantizationScheme& scheme) {
    Recipe recipe = whole_tensor(source, 0);
    EXPECT_TRUE(recipe.quantize(scheme, "w"));
    EXPECT_TRUE(recipe.is_coded());
    EXPECT_EQ(row_count(recipe), 6);
    return recipe.outputs;
  };
  EXPECT_EQ(outputs_of(kSchemes[0]),
            (std::vector<RecipeOutput>{{"", DType::kI4, {2, 3, 64}},
                                       {"scales", DType::kBF16, {2, 3, 2}}}));
  EXPECT_EQ(outputs_of(kSchemes[5]), (std::vector<RecipeOutput>{{"", DType::kI8, {2, 3, 64}},
                                                                {"scales", DType::kF32, {2, 3}}}));
  EXPECT_EQ(outputs_of({.group = 64, .scale_dtype = DType::kBF16})[1].shape, (Shape{2, 3}));
}

TEST(CodedRecipe, IsWrittenInPlainWords) {
  const auto text = [](const QuantizationScheme& scheme) {
    return step_name({.kind = Step::Kind::kQuantize, .scheme = scheme});
  };
  EXPECT_EQ(text(kSchemes[0]), "quantize i4 group 32 bf16 bf16_first low_first");
  EXPECT_EQ(text(kSchemes[2]), "quantize i4 row f32 bf16_first low_first");
  EXPECT_EQ(text(kSchemes[3]), "quantize i4 group 32 f32 bf16_first high_first");
  EXPECT_EQ(text(kSchemes[4]), "quantize i4 group 32 f32 hqq 3 low_first");
  EXPECT_EQ(text(kSchemes[5]), "quantize i8 row f32 bf16_first");
  EXPECT_EQ(step_name({.kind = Step::Kind::kSplitQ80}), "split q8_0");
  Random random{15};
  MemorySource source;
  add_random(source, random, DType::kBF16, {2, 64});
  Recipe recipe = whole_tensor(source, 0);
  ASSERT_TRUE(recipe.quantize(kSchemes[7], "w"));
  EXPECT_EQ(text_of(recipe, source), "#0 bf16 [0, 128:1] | quantize i8 row f32 hqq 2");
}

TEST(CodedRecipe, SchemesAreReadBack) {
  for (const QuantizationScheme& scheme : kSchemes) {
    const std::string text = step_name({.kind = Step::Kind::kQuantize, .scheme = scheme});
    const auto read = scheme_in("#0 bf16 [0, 128:1] | add 1 | " + text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(step_name({.kind = Step::Kind::kQuantize, .scheme = *read}), text);
  }
  EXPECT_EQ(scheme_in("#0 f32 [0, 8:1] | quantize i4 group 32 f32 hqq 4 high_first"),
            (QuantizationScheme{.group = 32,
                                .method = ScaleMethod::kHqq,
                                .order = NibbleOrder::kHighFirst,
                                .rounds = 4}));
  for (const std::string text :
       {"", "quantize i8 row f32 bf16_first", " | cast bf16", " | split q8_0",
        " | quantize i5 row f32 bf16_first", " | quantize i8 row f32 bf16_first ",
        " | quantize i8 row f32 bf16_first low_first", " | quantize i4 group 032 f32 bf16_first",
        " | quantize i4 group -32 f32 bf16_first low_first", " | quantize i8 row f16 bf16_first",
        " | quantize i8 row f32 bf16_first | cast f32"}) {
    EXPECT_FALSE(scheme_in(text)) << text;
  }
}

TEST(CodedRecipe, WhatHasNoEffectMakesNoOtherRecipe) {
  Random random{16};
  MemorySource source;
  add_random(source, random, DType::kBF16, {2, 64});
  Recipe a = whole_tensor(source, 0), b = a;
  ASSERT_TRUE(a.quantize({.bits = 8}, "w"));
  ASSERT_TRUE(b.quantize({.bits = 8, .order = NibbleOrder::kHighFirst, .rounds = 7}, "w"));
  EXPECT_EQ(a, b);
}

TEST(CodedRecipe, ShapesThatDoNotFitAreRefused) {
  Random random{17};
  MemorySource source;
  add_random(source, random, DType::kF32, {4, 96});
  source.add(DType::kI32, {2, 32}, Bytes(256));
  const auto refusal = [&](Shape shape, const QuantizationScheme& scheme) {
    Recipe recipe = whole_tensor(source, 0);
    recipe.output().shape = std::move(shape);
    const Recipe before = recipe;
    const Status status = recipe.quantize(scheme, "w");
    if (status) return std::string();
    EXPECT_EQ(status.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(recipe, before);
    return status.error().message;
  };
  const QuantizationScheme by_32 = kSchemes[0], by_64 = kSchemes[1];
  EXPECT_EQ(refusal({4, 96}, by_32), "");
  EXPECT_EQ(refusal({4, 96}, by_64),
            "weight 'w' [4, 96] cannot have groups of 64, which do not divide rows of 96 elements");
  EXPECT_EQ(refusal({384}, by_32),
            "weight 'w' [384] cannot have rows of codes: it is not a matrix");
  EXPECT_EQ(refusal({384, 0}, by_32),
            "weight 'w' [384, 0] cannot have rows of codes: its rows are empty");
  EXPECT_EQ(refusal({4, 96}, {.group = 16, .scale_dtype = DType::kBF16}),
            "weight 'w' [4, 96] cannot have groups of 16, which are not a multiple of 32");
  EXPECT_EQ(refusal({8, 48}, {.scale_dtype = DType::kBF16}),
            "weight 'w' [8, 48] cannot have groups of 48, which are not a multiple of 32");
  EXPECT_EQ(refusal({8, 48}, {.group = 16, .order = NibbleOrder::kHighFirst}), "");
  EXPECT_EQ(refusal({128, 3}, {}),
            "weight 'w' [128, 3] cannot have 4-bit rows of 3 elements, which is odd");
  EXPECT_EQ(refusal({128, 3}, {.bits = 8}), "");
  EXPECT_EQ(refusal({4, 96}, {.bits = 3}), "weight 'w' [4, 96] cannot have codes of 3 bits");
  EXPECT_EQ(refusal({4, 96}, {.scale_dtype = DType::kF16}),
            "weight 'w' [4, 96] cannot have scales in f16");
  Recipe integers = whole_tensor(source, 1);
  EXPECT_FALSE(integers.quantize(by_32, "w"));
  Recipe twice = whole_tensor(source, 0);
  ASSERT_TRUE(twice.quantize(by_32, "w"));
  EXPECT_FALSE(twice.quantize(by_32, "w"));
}

TEST(CodedRecipe, RowsThatAreNotThereAreADefect) {
  Random random{18};
  MemorySource source;
  add_random(source, random, DType::kF32, {4, 64});
  Recipe recipe = whole_tensor(source, 0);
  ASSERT_TRUE(recipe.quantize(kSchemes[5], "w"));
  Bytes codes(128), scales(8);
  const std::span<std::byte> room[] = {codes, scales};
  EXPECT_TRUE(materialize_rows(recipe, source, 2, 2, room));
  for (const auto& [first, rows] : {std::pair{3, 2}, {-1, 2}, {2, 1}, {5, 0}}) {
    const auto done = materialize_rows(recipe, source, first, rows, room);
    ASSERT_FALSE(done) << first;
    EXPECT_EQ(done.error().code, ErrorCode::kInternal);
  }
  EXPECT_FALSE(materialize_rows(recipe, source, 2, 2, std::span(room).first(1)));
  EXPECT_FALSE(materialize(recipe, source, 2, 0, codes)) << "no such output";
  EXPECT_FALSE(materialize(recipe, source, 1, 9, scales)) << "behind the end";
  EXPECT_FALSE(materialize(recipe, source, 0, codes)) << "one of two outputs";
  recipe.cast(DType::kF32);
  EXPECT_FALSE(materialize_rows(recipe, source, 2, 2, room)) << "a step behind the last";
}

TEST(CodedRecipe, ValuesThatAreNotFiniteAreCounted) {
  MemorySource source;
  Bytes bytes;
  for (int i = 0; i < 128; ++i) append(bytes, DType::kBF16, static_cast<float>(i));
  const float infinity = std::numeric_limits<float>::infinity();
  const uint16_t nan = f32_to_bf16(std::numeric_limits<float>::quiet_NaN());
  const uint16_t inf = f32_to_bf16(-infinity);
  std::memcpy(&bytes[2 * 3], &nan, 2);
  std::memcpy(&bytes[2 * 100], &inf, 2);
  source.add(DType::kBF16, {2, 64}, bytes);
  for (QuantizationScheme scheme : kSchemes) {
    Recipe recipe = whole_tensor(source, 0);
    ASSERT_TRUE(recipe.quantize(scheme, "w"));
    Bytes codes(recipe.outputs[0].bytes()), scales(recipe.outputs[1].bytes());
    const std::span<std::byte> room[] = {codes, scales};
    EXPECT_EQ(materialize_rows(recipe, source, 0, 2, room).value(), 2U);
    if (scheme.method != ScaleMethod::kHqq) continue;
    ThreadPool pool(2);
    const auto rounds = count_hqq_rounds(recipe, source, pool);
    ASSERT_FALSE(rounds);
    EXPECT_EQ(rounds.error().code, ErrorCode::kUnsupported);
    EXPECT_EQ(rounds.error().message,
              "memory: NaN and infinity cannot be quantised: 2 values (tensor 'tensor0')");
  }
}

TEST(CodedRecipe, RoundsAreThoseOfTheWholeTensor) {
  Random random{19};
  MemorySource source;
  add_random(source, random, DType::kF32, {6000, 256});  // makes several tiles
  const QuantizationScheme scheme{.group = 32, .method = ScaleMethod::kHqq};
  Recipe recipe = whole_tensor(source, 0);
  std::array<float, kMaxHqqRounds> changes = {};
  add_hqq_changes(scheme, values_of(recipe, source), 256, changes);
  ASSERT_TRUE(recipe.quantize(scheme, "w"));
  for (const size_t threads : {1, 3}) {
    ThreadPool pool(threads);
    EXPECT_EQ(count_hqq_rounds(recipe, source, pool).value(), hqq_rounds(changes));
  }
}

void decode_q8_0(const std::byte* block, float* out) {
  uint16_t scale = 0;
  std::memcpy(&scale, block, 2);
  for (int i = 0; i < 32; ++i) {
    out[i] = f16_to_f32(scale) * static_cast<float>(static_cast<int8_t>(block[2 + i]));
  }
}
constexpr BlockEncoding kQ80 = {"q8_0", 32, 34, decode_q8_0};

size_t add_q8_0(MemorySource& source, Random& random, const Shape& shape) {
  Bytes bytes(static_cast<size_t>(shape[0] * shape[1] / 32 * 34));
  for (std::byte& b : bytes) b = std::byte(random.below(256) & 0xbf);  // scales are finite
  return source.add(DType::kF32, shape, std::move(bytes), &kQ80);
}

TEST(CodedRecipe, BlocksOfQ80AreSplitWithoutLoss) {
  Random random{20};
  MemorySource source;
  add_q8_0(source, random, {6, 64});
  const Recipe plain = whole_tensor(source, 0);
  // The rows of two halves alternate, as where rotary dimensions are reordered.
  const Recipe turns =
      make_recipe(source, {{.tensor = 0, .axes = {{3, 64}, {2, 192}, {64, 1}}}}, {6, 64}, "w")
          .value();
  for (Recipe recipe : {plain, turns}) {
    const std::vector<float> values = values_of(recipe, source);
    ASSERT_TRUE(recipe.split_q8_0(source, "w"));
    EXPECT_EQ(recipe.outputs, (std::vector<RecipeOutput>{{"", DType::kI8, {6, 64}},
                                                         {"scales", DType::kF32, {6, 2}}}));
    for (const int64_t step : {1, 4, 6}) {
      const auto [codes, scales] = made(recipe, source, step);
      std::vector<float> back(values.size());
      dequantize_rows({.bits = 8, .group = 32}, codes, scales, 64, back);
      EXPECT_EQ(back, values);
    }
    Bytes part(7);
    ASSERT_TRUE(materialize(recipe, source, 1, 9, part));
    EXPECT_TRUE(std::equal(part.begin(), part.end(), made(recipe, source, 6)[1].begin() + 9));
  }
}

TEST(CodedRecipe, OnlyWholeRowsOfQ80AreSplit) {
  Random random{21};
  MemorySource source;
  add_q8_0(source, random, {4, 64});
  add_toy(source, random, {4, 64});
  add_random(source, random, DType::kF16, {4, 64});
  const auto refusal = [&](std::vector<StridedPiece> pieces, const Shape& shape) {
    Recipe recipe = make_recipe(source, std::move(pieces), shape, "w").value();
    const Status status = recipe.split_q8_0(source, "w");
    return status ? std::string() : status.error().message;
  };
  EXPECT_EQ(refusal({run_piece(0, 64, 128)}, {2, 64}), "");
  const std::string no =
      "weight 'w' [2, 64] cannot have the codes of the checkpoint: it is not "
      "rows of q8_0";
  EXPECT_EQ(refusal({run_piece(0, 32, 128)}, {2, 64}), no);
  EXPECT_EQ(refusal({run_piece(1, 0, 128)}, {2, 64}), no);
  EXPECT_EQ(refusal({run_piece(2, 0, 128)}, {2, 64}), no);
  EXPECT_EQ(refusal({run_piece(0, 0, 64), run_piece(2, 0, 64)}, {2, 64}), no);
  EXPECT_EQ(refusal({{.tensor = 0, .axes = {{2, 1}, {64, 2}}}}, {2, 64}), no);
  EXPECT_EQ(refusal({{.tensor = 0, .axes = {{2, 32}, {64, 1}}}}, {2, 64}), no);
  EXPECT_NE(refusal({run_piece(0, 0, 128)}, {128}), "");
  Recipe scaled = whole_tensor(source, 0);
  scaled.apply({.kind = Step::Kind::kMul, .value = 2});
  EXPECT_FALSE(scaled.split_q8_0(source, "w"));
}

TEST(StateDict, OutputsAreFoundByTheirKeys) {
  Random random{22};
  MemorySource source;
  add_random(source, random, DType::kF32, {2, 64});
  StateDict dict;
  Recipe coded = whole_tensor(source, 0);
  ASSERT_TRUE(coded.quantize(kSchemes[0], "a.weight"));
  ASSERT_TRUE(dict.add({"a.weight", coded, "x"}));
  ASSERT_TRUE(dict.add({"b.scales", whole_tensor(source, 0), "x"}));
  const auto found = [&](const std::string& key) {
    const WeightOutput output = dict.find_output(key);
    return output.weight == nullptr ? "none" : output.weight->name + std::to_string(output.output);
  };
  EXPECT_EQ(found("a.weight"), "a.weight0");
  EXPECT_EQ(found("a.weight.scales"), "a.weight1");
  EXPECT_EQ(found("b.scales"), "b.scales0");
  EXPECT_EQ(found("b.scales.scales"), "none");
  EXPECT_EQ(found("a.weight.zeros"), "none");
  EXPECT_EQ(found("a"), "none");
  EXPECT_EQ(key_of(*dict.find("a.weight"), 1), "a.weight.scales");
}

}  // namespace
}  // namespace ferry::graph::coded_recipe_test
