// Packed projections, tested with map_keys and materialize. A split moves whole rows of matrices,
// of biases and of scales with one value per row, in every dtype.

#include "converters/keys/layout_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace ferry::converters::layout_keys_packed_test {
namespace {

// Every element holds the number of its row, so that the result of a split shows where it came
// from.
class RowNumbers : public TensorSource {
 public:
  void add(const std::string& name, DType dtype, Shape shape) {
    const int64_t width = shape.size() > 1 ? shape[1] : 1;
    std::vector<std::byte> bytes;
    for (int64_t row = 0; row < shape[0]; ++row) {
      for (int64_t column = 0; column < width; ++column) {
        const auto number = static_cast<float>(row);
        uint32_t raw = 0;
        std::memcpy(&raw, &number, sizeof(raw));
        if (dtype == DType::kBF16) raw >>= 16;
        // The integers are small, so f16 needs only another exponent bias and a shorter mantissa.
        if (dtype == DType::kF16) raw = row == 0 ? 0 : (raw >> 13) - ((127 - 15) << 10);
        const auto* at = reinterpret_cast<const std::byte*>(&raw);
        bytes.insert(bytes.end(), at, at + dtype_bytes(dtype));
      }
    }
    entries_.push_back({.name = name, .dtype = dtype, .shape = shape, .bytes = bytes.size()});
    data_.push_back(std::move(bytes));
  }
  const std::string& path() const override { return path_; }
  const std::vector<SourceFile>& files() const override { return files_; }
  const std::vector<TensorEntry>& entries() const override { return entries_; }
  Status read(size_t index, uint64_t offset, std::span<std::byte> out) const override {
    std::copy_n(data_[index].begin() + static_cast<std::ptrdiff_t>(offset), out.size(),
                out.begin());
    return {};
  }

 private:
  std::string path_ = "memory";
  std::vector<SourceFile> files_ = {{.name = "memory"}};
  std::vector<TensorEntry> entries_;
  std::vector<std::vector<std::byte>> data_;
};

ModelConfig tiny() {
  ModelConfig c;
  c.num_layers = 1;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 4;
  c.intermediate_size = 6;
  c.linear = {.key_heads = 2, .value_heads = 4, .key_dim = 2, .value_dim = 3, .conv_kernel = 4};
  return c;
}

std::vector<float> values_of(const graph::Weight& weight, const TensorSource& source) {
  graph::Recipe recipe = weight.recipe;
  recipe.cast(DType::kF32);
  std::vector<float> values(recipe.output().bytes() / sizeof(float));
  EXPECT_TRUE(graph::materialize(recipe, source, 0, std::as_writable_bytes(std::span(values))));
  return values;
}

// Returns the source row of each row of a weight.
std::vector<float> rows_of(const MappedKeys& mapped, const std::string& name,
                           const TensorSource& source) {
  const graph::Weight* weight = mapped.weights.find(name);
  if (weight == nullptr) return {};
  const std::vector<float> values = values_of(*weight, source);
  const size_t rows = static_cast<size_t>(weight->recipe.output().shape[0]);
  std::vector<float> first;
  for (size_t row = 0; row < rows; ++row) {
    const size_t width = values.size() / rows;
    for (size_t i = 0; i < width; ++i) EXPECT_EQ(values[row * width + i], values[row * width]);
    first.push_back(values[row * width]);
  }
  return first;
}

TEST(PackedKeys, ASplitMovesRowsOfMatricesAndVectorsAlike) {
  const ModelConfig config = tiny();
  for (PackedLayout layout : {PackedLayout::kConcatenated, PackedLayout::kInterleaved}) {
    const std::vector<KeyRule> rules = [&] {
      std::vector<KeyRule> all = packed_qkv_rules("l.{i}.qkv_proj", /*bias=*/true, layout);
      for (KeyRule& rule : packed_gate_up_rules("l.{i}.gate_up_proj", /*bias=*/true, layout)) {
        all.push_back(std::move(rule));
      }
      return all;
    }();
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(dtype_name(dtype));
      RowNumbers source;
      source.add("l.0.qkv_proj.weight", dtype, {32, 5});
      source.add("l.0.qkv_proj.bias", dtype, {32});
      source.add("l.0.gate_up_proj.weight", dtype, {12, 3});
      source.add("l.0.gate_up_proj.bias", dtype, {12, 1});  // one scale per row, as a column
      const MappedKeys mapped =
          map_keys(source, key_by_name(source), config, rules, {}, {}).value();
      ASSERT_TRUE(mapped.problems.empty()) << mapped.problems[0].message;
      ASSERT_EQ(mapped.weights.weights().size(), 10U);
      for (const std::string name :
           {"attention.wq", "attention.wk", "attention.wv", "feed_forward.w1", "feed_forward.w3"}) {
        const std::string whole = "layers.0." + name;
        const auto rows = rows_of(mapped, whole + ".weight", source);
        EXPECT_EQ(rows, rows_of(mapped, whole + ".bias", source));
        EXPECT_FALSE(rows.empty());
      }
      const bool turns = layout == PackedLayout::kInterleaved;
      EXPECT_EQ(rows_of(mapped, "layers.0.attention.wk.weight", source),
                turns ? (std::vector<float>{8, 9, 10, 11, 24, 25, 26, 27})
                      : (std::vector<float>{16, 17, 18, 19, 20, 21, 22, 23}));
      EXPECT_EQ(rows_of(mapped, "layers.0.feed_forward.w3.weight", source),
                turns ? (std::vector<float>{1, 3, 5, 7, 9, 11})
                      : (std::vector<float>{6, 7, 8, 9, 10, 11}));
    }
  }
}

TEST(PackedKeys, DeltaNetsHaveTheirOwnLayoutOnlyWhereTheFamilyHasOne) {
  RowNumbers source;
  source.add("m.layers.0.linear_attn.in_proj_qkvz.weight", DType::kF32, {32, 2});
  source.add("m.layers.0.linear_attn.in_proj_ba.weight", DType::kF32, {8, 2});
  const MappedKeys open = map_keys(source, key_by_name(source), tiny(),
                                   packed_delta_net_rules("m.", std::nullopt), {}, {})
                              .value();
  ASSERT_EQ(open.problems.size(), 2U);
  EXPECT_EQ(open.problems[0].kind, KeyProblem::Kind::kAmbiguous);
  const MappedKeys own = map_keys(source, key_by_name(source), tiny(),
                                  packed_delta_net_rules("m.", PackedLayout::kInterleaved), {}, {})
                             .value();
  EXPECT_EQ(rows_of(own, "layers.0.attention.in_proj_b.weight", source),
            (std::vector<float>{0, 1, 4, 5}));
  const MappedKeys asked = map_keys(source, key_by_name(source), tiny(),
                                    packed_delta_net_rules("m.", PackedLayout::kInterleaved), {},
                                    {.packed_layout = PackedLayout::kConcatenated})
                               .value();
  EXPECT_EQ(rows_of(asked, "layers.0.attention.in_proj_b.weight", source),
            (std::vector<float>{0, 1, 2, 3}));
}

}  // namespace
}  // namespace ferry::converters::layout_keys_packed_test
