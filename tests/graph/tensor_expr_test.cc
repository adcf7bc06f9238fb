// Tensor expressions: any tile of any expression is what computing it element by element gives.

#include "graph/tensor_expr.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace ferry::graph {
namespace {

// Tensors in memory; refuses reads outside of them.
class MemorySource : public TensorSource {
 public:
  size_t add(DType dtype, Shape shape, std::vector<std::byte> bytes) {
    entries_.push_back({.name = "tensor" + std::to_string(entries_.size()),
                        .dtype = dtype,
                        .shape = std::move(shape),
                        .bytes = bytes.size()});
    data_.push_back(std::move(bytes));
    return entries_.size() - 1;
  }
  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override {
    const std::vector<std::byte>& data = data_.at(index);
    if (offset > data.size() || out.size() > data.size() - offset) {
      return fail(ErrorCode::kIo, "outside");
    }
    std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
    return {};
  }
  const std::vector<std::byte>& data(size_t index) const { return data_.at(index); }

 private:
  std::string path_ = "memory";
  std::vector<SourceFile> files_;
  std::vector<TensorEntry> entries_;
  std::vector<std::vector<std::byte>> data_;
};

// splitmix64
struct Random {
  uint64_t state;
  uint64_t next() {
    uint64_t z = (state += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t n) { return next() % n; }
};

constexpr DType kDTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

void append(std::vector<std::byte>& bytes, DType dtype, float value) {
  std::byte raw[4];
  size_t size = 2;
  if (dtype == DType::kF32) {
    size = 4;
    std::memcpy(raw, &value, 4);
  } else {
    const uint16_t bits = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    std::memcpy(raw, &bits, 2);
  }
  bytes.insert(bytes.end(), raw, raw + size);
}

float element(const std::vector<std::byte>& bytes, DType dtype, size_t index) {
  if (dtype == DType::kF32) {
    float value = 0;
    std::memcpy(&value, &bytes[index * 4], 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, &bytes[index * 2], 2);
  return dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

// The whole result, element by element.
std::vector<std::byte> naive(const TensorExpr& expr, const MemorySource& source) {
  std::vector<std::byte> out;
  for (const RowRun& run : expr.rows) {
    const Shape& shape = source.entries()[run.entry].shape;
    size_t row = 1;
    for (size_t i = 1; i < shape.size(); ++i) row *= static_cast<size_t>(shape[i]);
    for (size_t i = 0; i < static_cast<size_t>(run.count) * row; ++i) {
      float x = element(source.data(run.entry), expr.source_dtype,
                        static_cast<size_t>(run.begin) * row + i);
      for (const ElementStep& step : expr.steps) {
        if (step.kind == ElementStep::Kind::kAdd) x = x + static_cast<float>(step.value);
        if (step.kind == ElementStep::Kind::kMul) x = x * static_cast<float>(step.value);
        if (step.kind == ElementStep::Kind::kNegExp) {
          x = -static_cast<float>(std::exp(static_cast<double>(x)));
        }
      }
      append(out, expr.dtype, x);
    }
  }
  return out;
}

size_t add_random(MemorySource& source, Random& random, DType dtype, const Shape& shape) {
  std::vector<std::byte> bytes;
  size_t count = 1;
  for (int64_t dim : shape) count *= static_cast<size_t>(dim);
  for (size_t i = 0; i < count; ++i) {
    append(bytes, dtype, static_cast<float>(static_cast<int64_t>(random.below(4001)) - 2000) / 512);
  }
  return source.add(dtype, shape, std::move(bytes));
}

TensorExpr random_expr(Random& random, DType from, size_t entries, int64_t rows, int64_t width) {
  TensorExpr expr{.source_dtype = from, .dtype = kDTypes[random.below(3)], .shape = {0, width}};
  for (uint64_t runs = 1 + random.below(6); runs > 0; --runs) {
    const auto begin = static_cast<int64_t>(random.below(static_cast<uint64_t>(rows)));
    const auto count = static_cast<int64_t>(random.below(static_cast<uint64_t>(rows - begin) + 1));
    expr.rows.push_back({random.below(entries), begin, count});
    expr.shape[0] += count;
  }
  if (random.below(2) == 0) expr.steps.push_back({ElementStep::Kind::kAdd, 1});
  if (random.below(3) == 0) expr.steps.push_back({ElementStep::Kind::kMul, 0.37});
  if (random.below(3) == 0) expr.steps.push_back({ElementStep::Kind::kNegExp, 0});
  return expr;
}

TEST(TensorExpr, TilesOfRandomExpressionsEqualTheWhole) {
  Random random{1};
  for (int round = 0; round < 300; ++round) {
    MemorySource source;
    const DType from = kDTypes[random.below(3)];
    const auto rows = static_cast<int64_t>(1 + random.below(9));
    const auto width = static_cast<int64_t>(1 + random.below(7));
    for (int i = 0; i < 3; ++i) add_random(source, random, from, {rows, width});
    const TensorExpr expr = random_expr(random, from, 3, rows, width);
    const std::vector<std::byte> expected = naive(expr, source);
    ASSERT_EQ(expr.bytes(), expected.size());
    std::vector<std::byte> result(expected.size());
    const uint64_t size = static_cast<uint64_t>(dtype_bytes(expr.dtype));
    for (uint64_t done = 0; done < result.size();) {
      const uint64_t tile = std::min<uint64_t>((1 + random.below(11)) * size, result.size() - done);
      const Status status = materialize(expr, source, done, std::span(result).subspan(done, tile));
      ASSERT_TRUE(status.has_value()) << status.error().message;
      done += tile;
    }
    EXPECT_EQ(result, expected) << round;
  }
}

TEST(TensorExpr, LongRunsAreConvertedInPieces) {
  Random random{2};
  MemorySource source;
  const size_t entry = add_random(source, random, DType::kBF16, {3, 30000});
  TensorExpr expr = expr_of_entry(source, entry);
  expr.dtype = DType::kF16;
  std::vector<std::byte> result(expr.bytes());
  ASSERT_TRUE(materialize(expr, source, 0, result).has_value());
  EXPECT_EQ(result, naive(expr, source));
}

TEST(TensorExpr, AnEntryAsItIsIsCopied) {
  Random random{3};
  MemorySource source;
  add_random(source, random, DType::kF16, {4, 5});
  const TensorExpr expr = expr_of_entry(source, 0);
  EXPECT_TRUE(expr.is_copy());
  std::vector<std::byte> result(expr.bytes());
  ASSERT_TRUE(materialize(expr, source, 0, result).has_value());
  EXPECT_EQ(result, source.data(0));
}

TEST(TensorExpr, NaNsAreCopiedBitForBit) {
  MemorySource source;
  std::vector<std::byte> bytes(4, std::byte{0xff});  // a signalling NaN would change in a register
  bytes[1] = std::byte{0x7c};
  source.add(DType::kF16, {2}, bytes);
  std::vector<std::byte> result(4);
  ASSERT_TRUE(materialize(expr_of_entry(source, 0), source, 0, result).has_value());
  EXPECT_EQ(result, bytes);
}

TEST(TensorExpr, RowsMayRunOverSeveralDimensions) {
  Random random{5};
  MemorySource source;
  // The second half of the rows of three matrices (4, 2).
  const size_t entry = add_random(source, random, DType::kF32, {3, 4, 2});
  TensorExpr expr = expr_of_entry(source, entry);
  expr.shape = {3, 2, 2};
  expr.row_rank = 2;
  expr.rows = {{entry, 2, 2}, {entry, 6, 2}, {entry, 10, 2}};
  std::vector<std::byte> expected, result(expr.bytes());
  for (const size_t row : {2, 3, 6, 7, 10, 11}) {
    const auto begin = source.data(entry).begin() + static_cast<std::ptrdiff_t>(row * 8);
    expected.insert(expected.end(), begin, begin + 8);
  }
  ASSERT_TRUE(materialize(expr, source, 0, result).has_value());
  EXPECT_EQ(result, expected);
  expr.rows = {{entry, 11, 2}};
  EXPECT_FALSE(materialize(expr, source, 0, std::span(result).first(16)).has_value());
}

TEST(TensorExpr, RankZeroIsOneRow) {
  MemorySource source;
  std::vector<std::byte> bytes;
  append(bytes, DType::kF32, 2.5F);
  source.add(DType::kF32, {}, bytes);
  TensorExpr expr = expr_of_entry(source, 0);
  EXPECT_EQ(expr.rows, (std::vector<RowRun>{{0, 0, 1}}));
  EXPECT_EQ(expr.bytes(), 4U);
  expr.steps = {{ElementStep::Kind::kAdd, 1}};
  std::vector<std::byte> result(4);
  ASSERT_TRUE(materialize(expr, source, 0, result).has_value());
  EXPECT_EQ(element(result, DType::kF32, 0), 3.5F);
}

TEST(TensorExpr, NegativeExponential) {
  MemorySource source;
  std::vector<std::byte> bytes;
  append(bytes, DType::kF32, 0.0F);
  append(bytes, DType::kF32, std::log(16.0F));
  source.add(DType::kF32, {2}, bytes);
  TensorExpr expr = expr_of_entry(source, 0);
  expr.steps = {{ElementStep::Kind::kNegExp, 0}};
  std::vector<std::byte> result(8);
  ASSERT_TRUE(materialize(expr, source, 0, result).has_value());
  EXPECT_EQ(element(result, DType::kF32, 0), -1.0F);
  EXPECT_NEAR(element(result, DType::kF32, 1), -16.0F, 1e-5);
}

// expf() differs between C libraries in the last bit; the nearest f32 of the value is the same.
TEST(TensorExpr, ExponentialsAreTheNearestFloats) {
  constexpr size_t kCount = 20000;
  MemorySource source;
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < kCount; ++i) {
    append(bytes, DType::kF32, -9.0F + static_cast<float>(i) * 0.001F);
  }
  source.add(DType::kF32, {static_cast<int64_t>(kCount)}, bytes);
  TensorExpr expr = expr_of_entry(source, 0);
  expr.steps = {{ElementStep::Kind::kNegExp, 0}};
  std::vector<std::byte> result(bytes.size());
  ASSERT_TRUE(materialize(expr, source, 0, result).has_value());
  for (size_t i = 0; i < kCount; ++i) {
    const float x = element(bytes, DType::kF32, i);
    const auto exact = static_cast<float>(std::exp(static_cast<long double>(x)));
    EXPECT_EQ(element(result, DType::kF32, i), -exact) << x;
  }
}

TEST(TensorExpr, AnEmptyTensorHasNoBytes) {
  MemorySource source;
  source.add(DType::kF32, {0, 4}, {});
  TensorExpr expr = expr_of_entry(source, 0);
  expr.dtype = DType::kF16;
  EXPECT_EQ(expr.bytes(), 0U);
  EXPECT_TRUE(materialize(expr, source, 0, {}).has_value());
}

TEST(TensorExpr, WhatTheSourceDoesNotHaveIsAnError) {
  Random random{4};
  MemorySource source;
  add_random(source, random, DType::kF32, {4, 2});
  const TensorExpr good = expr_of_entry(source, 0);
  std::vector<std::byte> tile(8);
  ASSERT_TRUE(materialize(good, source, 24, tile).has_value());

  const auto fails = [&](TensorExpr expr, uint64_t offset) {
    return !materialize(expr, source, offset, tile).has_value();
  };
  EXPECT_TRUE(fails(good, 28)) << "behind the end";
  EXPECT_TRUE(fails(good, UINT64_MAX - 3)) << "far behind the end";
  EXPECT_TRUE(fails(good, 2)) << "within an element";
  TensorExpr expr = good;
  expr.rows = {{1, 0, 4}};
  EXPECT_TRUE(fails(expr, 0)) << "no such entry";
  expr.rows = {{0, 1, 4}};
  EXPECT_TRUE(fails(expr, 0)) << "too many rows";
  expr.rows = {{0, -1, 4}};
  EXPECT_TRUE(fails(expr, 0)) << "negative begin";
  expr.rows = {{0, 3, std::numeric_limits<int64_t>::max()}};
  EXPECT_TRUE(fails(expr, 0)) << "overflow";
  expr.rows = {{0, 0, 1}};
  EXPECT_TRUE(fails(expr, 8)) << "fewer rows than the shape says";
  expr = good;
  expr.source_dtype = expr.dtype = DType::kI32;
  EXPECT_TRUE(fails(expr, 0)) << "another dtype than the entry";
}

TEST(TensorExpr, IntegersAreCopiedButNotCast) {
  MemorySource source;
  source.add(DType::kI64, {1}, std::vector<std::byte>(8, std::byte{7}));
  TensorExpr expr = expr_of_entry(source, 0);
  std::vector<std::byte> result(8);
  EXPECT_TRUE(materialize(expr, source, 0, result).has_value());
  EXPECT_EQ(result, source.data(0));
  expr.dtype = DType::kF32;
  const Status status = materialize(expr, source, 0, std::span(result).first(4));
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
}  // namespace ferry::graph
