#include "converters/adapters/strided_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstring>
#include <numeric>
#include <thread>

namespace ferry::converters {
namespace {

// Element i of the k-th tensor is a value that tells both apart.
class Memory : public TensorSource {
 public:
  void add(const std::string& name, DType dtype, const Shape& shape,
           std::vector<float> values = {}) {
    const auto count = static_cast<size_t>(
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()));
    if (values.empty()) {
      for (size_t i = 0; i < count; ++i) {
        values.push_back(static_cast<float>(i) + 0.25f * static_cast<float>(entries_.size()));
      }
    }
    std::vector<std::byte> bytes;
    for (const float value : values) append(dtype, value, bytes);
    entries_.push_back({.name = name,
                        .dtype = dtype,
                        .shape = shape,
                        .bytes = bytes.size(),
                        .offset = 1000 * entries_.size()});
    bytes_.push_back(std::move(bytes));
  }
  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override {
    if (offset + out.size() > bytes_.at(index).size()) return fail(ErrorCode::kInternal, "beyond");
    std::memcpy(out.data(), bytes_[index].data() + offset, out.size());
    ++reads_;
    return {};
  }
  const std::atomic<size_t>& reads() const { return reads_; }

 private:
  static void append(DType dtype, float value, std::vector<std::byte>& bytes) {
    if (dtype == DType::kI64) return bytes.resize(bytes.size() + sizeof(int64_t));
    const uint16_t half = dtype == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
    const auto* from = dtype == DType::kF32 ? reinterpret_cast<const std::byte*>(&value)
                                            : reinterpret_cast<const std::byte*>(&half);
    bytes.insert(bytes.end(), from, from + dtype_bytes(dtype));
  }
  std::string path_ = "model.gguf";
  std::vector<SourceFile> files_ = {{"model.gguf", 0}};
  std::vector<TensorEntry> entries_;
  std::vector<std::vector<std::byte>> bytes_;
  mutable std::atomic<size_t> reads_ = 0;
};

std::unique_ptr<TensorSource> memory(std::initializer_list<std::pair<const char*, Shape>> tensors,
                                     DType dtype = DType::kF32) {
  auto source = std::make_unique<Memory>();
  for (const auto& [name, shape] : tensors) source->add(name, dtype, shape);
  return source;
}

size_t index_of(const TensorSource& source, const std::string& name) {
  for (size_t i = 0; i < source.entries().size(); ++i) {
    if (source.entries()[i].name == name) return i;
  }
  ADD_FAILURE() << "no tensor " << name;
  return 0;
}

// The elements [from, from + count) of an f32 tensor.
std::vector<float> floats(const TensorSource& source, const std::string& name, size_t from = 0,
                          size_t count = SIZE_MAX) {
  const size_t index = index_of(source, name);
  std::vector<float> values(std::min(count, source.entries()[index].bytes / sizeof(float) - from));
  const Status read =
      source.read(index, from * sizeof(float), std::as_writable_bytes(std::span(values)));
  EXPECT_TRUE(read) << read.error().message;
  return values;
}

// What the pieces say, element by element.
std::vector<float> walk(const TensorSource& inner, const StridedTensor& tensor) {
  std::vector<float> values;
  for (const StridedPiece& piece : tensor.pieces) {
    const std::vector<float> stored = floats(inner, inner.entries()[piece.entry].name);
    std::vector<int64_t> at(piece.dims.size(), 0);
    bool done = std::ranges::count(piece.dims, 0) > 0;
    while (!done) {
      int64_t element = piece.offset;
      for (size_t i = 0; i < at.size(); ++i) element += at[i] * piece.strides[i];
      values.push_back(stored.at(static_cast<size_t>(element)));
      size_t axis = at.size();
      while (axis > 0 && ++at[axis - 1] == piece.dims[axis - 1]) at[--axis] = 0;
      done = axis == 0;
    }
  }
  return values;
}

TEST(StridedSource, WalksAreWhatTheirPiecesSay) {
  const struct {
    const char* what;
    Shape shape;
    std::vector<StridedPiece> pieces;
  } kCases[] = {
      {"rename", {6, 4}, {{0, 0, {24}, {1}}}},
      {"transpose", {4, 6}, {{0, 0, {4, 6}, {1, 4}}}},
      {"swap of two axes of three", {3, 2, 4}, {{0, 0, {3, 2, 4}, {4, 12, 1}}}},
      {"rows in pairs to halves", {6, 4}, {{0, 0, {2, 3, 4}, {4, 8, 1}}}},
      {"columns reordered", {6, 4}, {{0, 0, {6, 2, 2}, {4, 1, 2}}}},
      {"inverse order of four axes", {24}, {{0, 0, {2, 2, 3, 2}, {1, 2, 4, 12}}}},
      {"two halves changed over", {6, 4}, {{0, 12, {12}, {1}}, {0, 0, {12}, {1}}}},
      {"two tensors in turns",
       {48},
       {{0, 0, {12}, {1}}, {1, 0, {12}, {1}}, {0, 12, {12}, {1}}, {1, 12, {4, 3}, {1, 4}}}},
      {"axes of size one", {6, 1, 4}, {{0, 0, {1, 6, 1, 4}, {7, 4, 9, 1}}}},
  };
  for (const auto& c : kCases) {
    auto inner = memory({{"a", {6, 4}}, {"b", {6, 4}}});
    const StridedTensor tensor{.name = "t", .shape = c.shape, .pieces = c.pieces};
    const std::vector<float> expected = walk(*inner, tensor);
    auto source = StridedSource::make(std::move(inner), {tensor});
    ASSERT_TRUE(source) << c.what << ": " << source.error().message;
    EXPECT_EQ((*source)->entries()[index_of(**source, "t")].shape, c.shape);
    EXPECT_EQ(floats(**source, "t"), expected) << c.what;
    for (size_t from = 0; from < expected.size(); ++from) {
      for (size_t count = 1; count <= expected.size() - from; count += 3) {
        EXPECT_EQ(floats(**source, "t", from, count),
                  std::vector(expected.begin() + static_cast<int64_t>(from),
                              expected.begin() + static_cast<int64_t>(from + count)))
            << c.what << " from " << from << ", " << count;
      }
    }
  }
}

TEST(StridedSource, LargeTensorsAreReadInBlocks) {
  // Three blocks and a bit, transposed, so that a block is many short runs; and a permutation of
  // heads whose window is the block itself.
  constexpr int64_t kRows = 1100, kColumns = 3000;
  for (const bool transpose : {true, false}) {
    auto inner = memory({{"a", {kRows, kColumns}}});
    const StridedTensor tensor{
        .name = "t",
        .shape = transpose ? Shape{kColumns, kRows} : Shape{kRows, kColumns},
        .pieces = {
            transpose
                ? StridedPiece{0, 0, {kColumns, kRows}, {1, kColumns}}
                : StridedPiece{
                      0, 0, {10, 2, 55, kColumns}, {110 * kColumns, kColumns, 2 * kColumns, 1}}}};
    const std::vector<float> expected = walk(*inner, tensor);
    const auto source = StridedSource::make(std::move(inner), {tensor}).value();
    EXPECT_EQ(floats(*source, "t"), expected);
    constexpr size_t kEdge = StridedSource::kBlockElements;
    EXPECT_EQ(floats(*source, "t", kEdge - 5, 11),
              std::vector(expected.begin() + kEdge - 5, expected.begin() + kEdge + 6));
  }
}

TEST(StridedSource, ManyThreadsReadTheSame) {
  auto inner = memory({{"a", {900, 4001}}});
  const StridedTensor tensor{
      .name = "t", .shape = {4001, 900}, .pieces = {{0, 0, {4001, 900}, {1, 4001}}}};
  const std::vector<float> expected = walk(*inner, tensor);
  const auto source = StridedSource::make(std::move(inner), {tensor}).value();
  std::vector<std::vector<float>> read(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < read.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t from = 0; from < expected.size(); from += 300000) {
        const auto part = floats(*source, "t", from, 300000);
        read[t].insert(read[t].end(), part.begin(), part.end());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& values : read) EXPECT_EQ(values, expected);
}

// However many threads are in the middle of a block of their own, none is computed twice.
TEST(StridedSource, EveryThreadFindsItsBlockAgain) {
  constexpr size_t kThreads = 40, kPieces = 4;
  auto inner = std::make_unique<Memory>();
  const Memory& memory_source = *inner;
  std::vector<StridedTensor> tensors;
  for (size_t i = 0; i < kThreads; ++i) {
    const std::string name = "t" + std::to_string(i);
    inner->add(name, DType::kF32, {4, 6});
    tensors.push_back({.name = name, .shape = {6, 4}, .pieces = {{i, 0, {6, 4}, {1, 6}}}});
  }
  const auto source = StridedSource::make(std::move(inner), tensors).value();
  std::barrier barrier(static_cast<std::ptrdiff_t>(kThreads));
  std::vector<std::thread> threads;
  std::vector<size_t> reads(kPieces);
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t piece = 0; piece < kPieces; ++piece) {
        const auto values = floats(*source, "t" + std::to_string(t), 6 * piece, 6);
        ASSERT_EQ(values.size(), 6u);
        barrier.arrive_and_wait();
        if (t == 0) reads[piece] = memory_source.reads();
        barrier.arrive_and_wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(reads, std::vector<size_t>(kPieces, reads[0])) << "the first pieces made all blocks";
}

TEST(StridedSource, BytesOfAnyDtypeAreKept) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    auto inner = memory({{"a", {2, 3}}}, dtype);
    const auto size = static_cast<size_t>(dtype_bytes(dtype));
    std::vector<std::byte> stored(6 * size), read(6 * size);
    ASSERT_TRUE(inner->read(0, 0, stored));
    const auto source =
        StridedSource::make(std::move(inner),
                            {{.name = "t", .shape = {3, 2}, .pieces = {{0, 0, {3, 2}, {1, 3}}}}})
            .value();
    EXPECT_EQ(source->entries()[0].dtype, dtype);
    EXPECT_EQ(source->entries()[0].bytes, 6 * size);
    ASSERT_TRUE(source->read(0, 0, read));
    for (size_t i = 0; i < 6; ++i) {
      EXPECT_EQ(std::memcmp(&read[i * size], &stored[(i % 2 * 3 + i / 2) * size], size), 0);
    }
    // Reads need not begin with an element.
    std::vector<std::byte> middle(3);
    ASSERT_TRUE(source->read(0, 3, middle));
    EXPECT_EQ(std::memcmp(middle.data(), &read[3], 3), 0);
  }
}

TEST(StridedSource, PiecesOfSeveralDtypesBecomeF32) {
  auto inner = std::make_unique<Memory>();
  inner->add("a", DType::kF16, {2}, {1.5f, -2.0f});
  inner->add("b", DType::kF32, {2}, {0.1f, 3.0f});
  inner->add("c", DType::kBF16, {1}, {0.5f});
  const auto source =
      StridedSource::make(std::move(inner),
                          {{.name = "t",
                            .shape = {5},
                            .pieces = {{0, 0, {2}, {1}}, {1, 0, {2}, {1}}, {2, 0, {1}, {1}}}}})
          .value();
  EXPECT_EQ(floats(*source, "t"), (std::vector<float>{1.5f, -2.0f, 0.1f, 3.0f, 0.5f}));
  EXPECT_EQ(source->entries()[0].original, "a + b + c");
}

TEST(StridedSource, ChangesAreMadeInF32) {
  const struct {
    ElementChange change;
    float (*expected)(float);
    std::vector<float> values;
  } kCases[] = {
      {ElementChange::kSubtractOne, [](float x) { return x - 1.0f; }, {1.0f, 0.75f, 1.1f, -3.0f}},
      {ElementChange::kLogOfNegated, [](float x) { return std::log(-x); }, {-1.0f, -0.1f, -7.5f}},
  };
  for (const auto& c : kCases) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      auto inner = std::make_unique<Memory>();
      const auto count = static_cast<int64_t>(c.values.size());
      inner->add("a", dtype, {count}, c.values);
      const auto source = StridedSource::make(std::move(inner), {{.name = "t",
                                                                  .shape = {count},
                                                                  .pieces = {{0, 0, {count}, {1}}},
                                                                  .change = c.change}})
                              .value();
      EXPECT_EQ(source->entries()[0].dtype, DType::kF32);
      std::vector<float> expected;
      for (const float x : c.values) {
        const float stored = dtype == DType::kF16    ? f16_to_f32(f32_to_f16(x))
                             : dtype == DType::kBF16 ? bf16_to_f32(f32_to_bf16(x))
                                                     : x;
        expected.push_back(c.expected(stored));
      }
      EXPECT_EQ(floats(*source, "t"), expected) << dtype_name(dtype);
    }
  }
}

TEST(StridedSource, WhatNoPieceMentionsStaysAsItIs) {
  const auto source =
      StridedSource::make(memory({{"a", {4}}, {"b", {2, 3}}, {"c", {5}}}),
                          {{.name = "z", .shape = {3, 2}, .pieces = {{1, 0, {3, 2}, {1, 3}}}}})
          .value();
  std::vector<std::string> names, originals;
  for (const TensorEntry& entry : source->entries()) {
    names.push_back(entry.name);
    originals.push_back(entry.original);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a", "z", "c"}));
  EXPECT_EQ(originals, (std::vector<std::string>{"", "b", ""}));
  EXPECT_EQ(floats(*source, "c"), (std::vector<float>{0.5f, 1.5f, 2.5f, 3.5f, 4.5f}));
  EXPECT_EQ(source->entries()[1].offset, 1000u);
}

TEST(StridedSource, ManyOriginalsAreCutShort) {
  std::vector<StridedPiece> pieces;
  for (size_t i = 0; i < 6; ++i) pieces.push_back({i, 0, {1}, {1}});
  const auto source =
      StridedSource::make(
          memory({{"a", {1}}, {"b", {1}}, {"c", {1}}, {"d", {1}}, {"e", {1}}, {"f", {1}}}),
          {{.name = "t", .shape = {6}, .pieces = pieces}})
          .value();
  EXPECT_EQ(source->entries()[0].original, "a + b + c + d + 2 more");
}

TEST(StridedSource, RefusesWhatDoesNotFit) {
  const StridedPiece kWhole = {0, 0, {24}, {1}};
  const struct {
    std::vector<StridedTensor> tensors;
    ErrorCode code;
    const char* message;
  } kCases[] = {
      {{{"t", {5, 5}, {{0, 0, {25}, {1}}}}},
       ErrorCode::kBadInput,
       "model.gguf: 'a' [6, 4] has fewer elements than 't' needs of it"},
      {{{"t", {2, 4}, {{0, 16, {2, 4}, {5, 1}}}}},
       ErrorCode::kBadInput,
       "model.gguf: 'a' [6, 4] has fewer elements than 't' needs of it"},
      {{{"t", {2, 2}, {{0, 0, {2, 2}, {INT64_MAX / 2, INT64_MAX / 2}}}}},
       ErrorCode::kBadInput,
       "model.gguf: 'a' [6, 4] has fewer elements than 't' needs of it"},
      {{{"t", {5, 5}, {kWhole}}},
       ErrorCode::kBadInput,
       "model.gguf: 'a' gives 24 elements, but 't' [5, 5] has 25"},
      {{{"t", {5, 4}, {{0, 0, {20}, {1}}}}},
       ErrorCode::kBadInput,
       "model.gguf: 'a' [6, 4] has 24 elements, of which the model has 20"},
      {{{"b", {24}, {kWhole}}}, ErrorCode::kBadInput, "model.gguf: 'b' would be a second 'b'"},
      {{{"t", {2}, {{1, 0, {2}, {1}}}, ElementChange::kSubtractOne}},
       ErrorCode::kBadInput,
       "model.gguf: 'b' is i64, expected f32, f16 or bf16"},
      {{{"t", {26}, {kWhole, {1, 0, {2}, {1}}}}},
       ErrorCode::kBadInput,
       "model.gguf: 'b' is i64, expected f32, f16 or bf16"},
      {{{"t", {24}, {}}}, ErrorCode::kInternal, nullptr},
      {{{"t", {24}, {{7, 0, {24}, {1}}}}}, ErrorCode::kInternal, nullptr},
      {{{"t", {24}, {{0, 0, {24}, {}}}}}, ErrorCode::kInternal, nullptr},
      {{{"t", {24}, {{0, 23, {24}, {-1}}}}}, ErrorCode::kInternal, nullptr},
      {{{"t", {-1}, {kWhole}}}, ErrorCode::kInternal, nullptr},
  };
  for (const auto& c : kCases) {
    auto inner = std::make_unique<Memory>();
    inner->add("a", DType::kF32, {6, 4});
    inner->add("b", DType::kI64, {2}, {0.0f, 0.0f});
    const auto source = StridedSource::make(std::move(inner), c.tensors);
    ASSERT_FALSE(source) << (c.message ? c.message : "internal");
    EXPECT_EQ(source.error().code, c.code) << source.error().message;
    if (c.message) {
      EXPECT_EQ(source.error().message, c.message);
    }
  }
}

}  // namespace
}  // namespace ferry::converters
