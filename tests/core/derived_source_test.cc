#include "core/derived_source.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <vector>

#include "core/tensor_source.h"

namespace ferry::derived_source_test {
namespace {

std::unique_ptr<MemorySource> stored() {
  auto source = std::make_unique<MemorySource>("model");
  source->add("codes", DType::kU8, {8}, std::vector<uint8_t>(8));
  source->add("scales", DType::kF32, {1}, std::vector<float>(1));
  return source;
}

// Gives the number of each element, plus the value of another tensor where there is one.
class Counted final : public FloatDerivation {
 public:
  explicit Counted(int64_t columns, std::optional<size_t> base = {})
      : columns_(columns), base_(base) {}
  Status values(const TensorSource& source, int64_t first, std::span<float> out) const override {
    EXPECT_EQ(static_cast<int64_t>(out.size()) % columns_, 0);
    if (base_) {
      FERRY_RETURN_IF_ERROR(
          read_floats(source, *base_, static_cast<uint64_t>(first * columns_), out));
    }
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] += static_cast<float>(static_cast<size_t>(first * columns_) + i);
    }
    return {};
  }

 private:
  int64_t columns_;
  std::optional<size_t> base_;
};

std::vector<float> read(const TensorSource& source, size_t entry, uint64_t first, size_t count) {
  std::vector<float> out(count);
  EXPECT_TRUE(source.read(entry, first * sizeof(float), std::as_writable_bytes(std::span(out))));
  return out;
}

DerivedTensor tensor(const char* name, Shape shape, std::vector<size_t> parts,
                     std::optional<size_t> base = {}) {
  const int64_t columns = shape[1];
  return {name, std::move(shape), std::move(parts), "counted",
          std::make_unique<Counted>(columns, base)};
}

TEST(DerivedSource, GivesAnyRangeAcrossBlocks) {
  DerivedSource source(stored());
  constexpr int64_t kColumns = 1000;  // a block has 256 rows
  const auto entry = source.add(tensor("w", {600, kColumns}, {0, 1}));
  ASSERT_TRUE(entry) << entry.error().message;
  EXPECT_EQ(*entry, 2u);
  EXPECT_EQ(source.entries()[2].bytes, 600u * kColumns * 4);
  for (const uint64_t first : {uint64_t{0}, uint64_t{255'999}, uint64_t{511'990}}) {
    const std::vector<float> values = read(source, 2, first, 20);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], static_cast<float>(first + i));
    }
  }
  EXPECT_EQ(read(source, 2, 599'999, 1)[0], 599'999.0f);
  std::byte past[8] = {};
  EXPECT_FALSE(source.read(2, 599'999 * 4, past));
}

// A byte holds two elements and is the number of the pair.
constexpr BlockEncoding kPairs = {"pairs", 2, 1, nullptr};

class Pairs final : public Derivation {
 public:
  const BlockEncoding* encoding() const override { return &kPairs; }
  Status rows(const TensorSource&, int64_t first, std::span<std::byte> out) const override {
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<std::byte>(static_cast<size_t>(first) * 2 + i);
    }
    return {};
  }
};

TEST(DerivedSource, GivesTheBlocksOfAnEncoding) {
  DerivedSource source(stored());
  const auto entry = source.add({"w", {8, 4}, {0, 1}, "pairs", std::make_unique<Pairs>()});
  ASSERT_TRUE(entry) << entry.error().message;
  EXPECT_EQ(source.entries()[*entry].encoding, &kPairs);
  EXPECT_EQ(source.entries()[*entry].bytes, 16u);
  std::byte bytes[3] = {};
  ASSERT_TRUE(source.read(*entry, 13, bytes));
  EXPECT_EQ(bytes[2], std::byte{15});
  EXPECT_FALSE(source.read(*entry, 14, bytes));
  EXPECT_FALSE(source.add({"x", {8, 3}, {0, 1}, "pairs", std::make_unique<Pairs>()}));
}

TEST(DerivedSource, NamesTheStoredPartsOfWhatIsDerivedTwice) {
  DerivedSource source(stored());
  ASSERT_TRUE(source.add(tensor("w", {2, 4}, {0, 1})));
  const auto twice = source.add(tensor("x", {2, 4}, {2, 1}, 2));
  ASSERT_TRUE(twice);
  const std::span<const size_t> parts = parts_of(source, *twice);
  EXPECT_EQ(std::vector<size_t>(parts.begin(), parts.end()), (std::vector<size_t>{0, 1}));
  EXPECT_EQ(form_of(source, *twice), "counted:12/8");
  EXPECT_EQ(form_of(source, 0), "u8");
  EXPECT_TRUE(parts_of(source, 0).empty());
  EXPECT_EQ(read(source, *twice, 5, 1)[0], 10.0f);
}

TEST(DerivedSource, AddsTheFilesOfAnotherSource) {
  DerivedSource source(stored());
  EXPECT_FALSE(source.add_source(stored()));  // the names are taken
  auto inner = std::make_unique<DerivedSource>(stored());
  ASSERT_TRUE(inner->add(tensor("w", {2, 4}, {0, 1})));
  DerivedSource outer(std::move(inner));
  const std::span<const size_t> parts = parts_of(outer, 2);
  EXPECT_EQ(parts.size(), 2u);
  EXPECT_EQ(read(outer, 2, 3, 1)[0], 3.0f);
}

}  // namespace
}  // namespace ferry::derived_source_test
