#include "proof/reference.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace ferry::proof::reference_test {
namespace {

// Tensors in memory.
class MemorySource : public TensorSource {
 public:
  template <class T>
  MemorySource& add(const std::string& name, DType dtype, Shape shape, std::vector<T> values) {
    const auto bytes = std::as_bytes(std::span(values));
    entries_.push_back({.name = name,
                        .dtype = dtype,
                        .shape = std::move(shape),
                        .bytes = bytes.size(),
                        .file = 0,
                        .offset = data_.size()});
    data_.insert(data_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  MemorySource& encode_last(const BlockEncoding* encoding) {
    entries_.back().encoding = encoding;
    return *this;
  }
  MemorySource& ids(const std::string& name, std::vector<int64_t> values) {
    const auto count = static_cast<int64_t>(values.size());
    return add(name, DType::kI64, {1, count}, std::move(values));
  }

  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override {
    if (!out.empty())
      std::memcpy(out.data(), data_.data() + entries_[index].offset + offset, out.size());
    return {};
  }

 private:
  std::string path_ = "golden.safetensors";
  std::vector<SourceFile> files_;
  std::vector<TensorEntry> entries_;
  std::vector<std::byte> data_;
};

void expect_bad_input(const MemorySource& source, const std::string& part) {
  const Result<Reference> reference = Reference::open(source);
  ASSERT_FALSE(reference);
  EXPECT_EQ(reference.error().code, ErrorCode::kBadInput);
  EXPECT_NE(reference.error().message.find(part), std::string::npos) << reference.error().message;
}

TEST(Reference, TensorsInBlocksAreRefused) {
  static constexpr BlockEncoding kBlocks = {"q8_0", 32, 34, nullptr};
  MemorySource source;
  source.ids("short.input_ids", {1, 2});
  source.add<uint8_t>("short.logits", DType::kF32, {1, 32}, std::vector<uint8_t>(34));
  source.encode_last(&kBlocks);
  expect_bad_input(source,
                   "stored as q8_0, expected plain values (tensor "
                   "'short.logits')");
}

TEST(Reference, PathsOfHdf5AreNamesWithDots) {
  MemorySource source;
  source.ids("short/input_ids", {1, 2}).ids("long.input_ids", {3});
  source.add<float>("short/cache/0.key", DType::kF32, {2}, {1, 2});
  const Reference reference = Reference::open(source).value();
  ASSERT_EQ(reference.prompts().size(), 2u);
  EXPECT_EQ(reference.prompts()[1].name, "short");
  EXPECT_TRUE(reference.prompts()[1].has("cache.0.key"));
  source.ids("short.cache/0.key", {1});
  expect_bad_input(source, "occurs twice, with '/' and with '.' (tensor 'short.cache/0.key')");
  MemorySource prompts;
  prompts.ids("a/input_ids", {1}).ids("a.input_ids", {1});
  expect_bad_input(prompts, "two prompts are called 'a'");
}

TEST(Reference, TensorsBelongToThePromptOfTheirPrefix) {
  MemorySource source;
  source.ids("short.input_ids", {1, 2}).ids("long.input_ids", {3, 4, 5});
  source.add<float>("short.cache.0.key", DType::kF32, {2}, {1, 2});
  source.add<float>("long.logits", DType::kF32, {1}, {7});
  const Result<Reference> reference = Reference::open(source);
  ASSERT_TRUE(reference) << reference.error().message;
  ASSERT_EQ(reference->prompts().size(), 2U);
  const ReferencePrompt& longer = reference->prompts()[0];
  const ReferencePrompt& shorter = reference->prompts()[1];
  EXPECT_EQ(longer.name, "long");
  EXPECT_EQ(longer.input_ids, (std::vector<int64_t>{3, 4, 5}));
  EXPECT_TRUE(longer.has("logits"));
  EXPECT_FALSE(longer.has("cache.0.key"));
  EXPECT_TRUE(shorter.has("cache.0.key"));
}

TEST(Reference, WithoutPrefixesThereIsOnePrompt) {
  MemorySource source;
  source.ids("input_ids", {1}).add<float>("hidden_states.0", DType::kF32, {1}, {7});
  const Result<Reference> reference = Reference::open(source);
  ASSERT_TRUE(reference);
  EXPECT_EQ(reference->prompts()[0].name, "");
  EXPECT_TRUE(reference->prompts()[0].has("hidden_states.0"));
}

TEST(Reference, TheLongerPrefixOwnsATensor) {
  MemorySource source;
  source.ids("a.input_ids", {1}).ids("a.b.input_ids", {2});
  source.add<float>("a.b.logits", DType::kF32, {1}, {7});
  const Result<Reference> reference = Reference::open(source);
  ASSERT_TRUE(reference);
  EXPECT_FALSE(reference->prompts()[0].has("b.logits"));
  EXPECT_TRUE(reference->prompts()[1].has("logits"));
}

TEST(Reference, FilesThatAreNoneAreRefused) {
  expect_bad_input(MemorySource().add<float>("logits", DType::kF32, {1}, {1}), "input_ids");
  expect_bad_input(MemorySource().ids("input_ids", {}), "empty");
  expect_bad_input(MemorySource().ids("a.input_ids", {1}).ids("b.greedy_ids", {1}),
                   "'b.greedy_ids'");
  expect_bad_input(MemorySource().add<float>("input_ids", DType::kF32, {1, 1}, {1}), "f32");
  expect_bad_input(MemorySource().add<int64_t>("input_ids", DType::kI64, {2, 1}, {1, 2}), "[2, 1]");
}

TEST(Reference, ValuesOfEveryFloatTypeAreWidened) {
  MemorySource source;
  source.ids("input_ids", {1});
  source.add<uint16_t>("h16", DType::kF16, {2}, {0x3c00, 0xc000});    // 1, -2
  source.add<uint16_t>("hb16", DType::kBF16, {2}, {0x3f80, 0xc000});  // 1, -2
  source.add<float>("h32", DType::kF32, {2}, {1, -2});
  source.add<double>("h64", DType::kF64, {2}, {1, -2});
  const Result<Reference> reference = Reference::open(source);
  ASSERT_TRUE(reference);
  for (const char* name : {"h16", "hb16", "h32", "h64"}) {
    const auto values = reference->floats(reference->prompts()[0], name, {2});
    ASSERT_TRUE(values) << name;
    EXPECT_EQ(*values, (std::vector<float>{1, -2})) << name;
  }
}

TEST(Reference, WrongShapesKindsAndValuesAreBadInput) {
  MemorySource source;
  source.ids("input_ids", {1});
  source.add<float>("short", DType::kF32, {2}, {1, 2});
  source.add<float>("nan", DType::kF32, {2}, {1, std::numeric_limits<float>::quiet_NaN()});
  source.add<int64_t>("int", DType::kI64, {2}, {1, 2});
  const Result<Reference> reference = Reference::open(source);
  ASSERT_TRUE(reference);
  const ReferencePrompt& prompt = reference->prompts()[0];
  EXPECT_FALSE(reference->floats(prompt, "short", {3}));
  EXPECT_FALSE(reference->floats(prompt, "short", {1, 2}));
  EXPECT_FALSE(reference->floats(prompt, "int", {2}));
  const auto not_finite = reference->floats(prompt, "nan", {2});
  ASSERT_FALSE(not_finite);
  EXPECT_NE(not_finite.error().message.find("element 1"), std::string::npos);
}

}  // namespace
}  // namespace ferry::proof::reference_test
