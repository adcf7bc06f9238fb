#include "converters/keys/row_layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace ferry::converters::row_layouts_test {
namespace {

std::vector<int64_t> expand(const RowOrder& order) {
  std::vector<int64_t> rows;
  for (const StridedPiece& piece : order) {
    for_each_run(piece, [&](int64_t offset, int64_t count) {
      for (int64_t i = 0; i < count; ++i) rows.push_back(offset + i);
    });
  }
  return rows;
}

std::vector<LinearAttentionConfig> layouts() {
  std::vector<LinearAttentionConfig> all;
  for (const auto& [nk, nv, dk, dv] : {std::array{1, 1, 1, 1},
                                       {2, 2, 16, 16},
                                       {2, 4, 16, 16},
                                       {3, 6, 4, 2},
                                       {16, 32, 8, 4},
                                       {1, 5, 2, 7}}) {
    LinearAttentionConfig c;
    c.key_heads = nk;
    c.value_heads = nv;
    c.key_dim = dk;
    c.value_dim = dv;
    all.push_back(c);
  }
  return all;
}

bool is_bijection(std::vector<int64_t> rows, int64_t count) {
  std::sort(rows.begin(), rows.end());
  if (std::ssize(rows) != count) return false;
  for (int64_t i = 0; i < count; ++i) {
    if (rows[static_cast<size_t>(i)] != i) return false;
  }
  return true;
}

constexpr PackedLayout kLayouts[] = {PackedLayout::kConcatenated, PackedLayout::kInterleaved};

ModelConfig sizes(int64_t heads, int64_t kv_heads, int64_t head_dim, int64_t intermediate) {
  ModelConfig c;
  c.num_heads = heads;
  c.num_kv_heads = kv_heads;
  c.head_dim = head_dim;
  c.intermediate_size = intermediate;
  return c;
}

void add(std::vector<int64_t>& rows, const RowOrder& runs) {
  std::ranges::copy(expand(runs), std::back_inserter(rows));
}

TEST(RowLayouts, EverySplitUsesEveryRowOnce) {
  for (PackedLayout layout : kLayouts) {
    for (const LinearAttentionConfig& c : layouts()) {
      std::vector<int64_t> qkvz = expand(qkv_rows(c, layout));
      EXPECT_EQ(std::ssize(qkvz), c.conv_channels());
      add(qkvz, qkvz_rows(c, layout, QkvzPart::kGate));
      EXPECT_TRUE(is_bijection(qkvz, qkvz_row_count(c)));

      std::vector<int64_t> ba = expand(ba_rows(c, layout, BaPart::kBeta));
      EXPECT_EQ(std::ssize(ba), c.value_heads);
      add(ba, ba_rows(c, layout, BaPart::kAlpha));
      EXPECT_TRUE(is_bijection(ba, ba_row_count(c)));
    }
    for (const ModelConfig& c :
         {sizes(1, 1, 1, 1), sizes(4, 2, 3, 5), sizes(6, 6, 2, 7), sizes(8, 1, 4, 16)}) {
      std::vector<int64_t> qkv;
      for (QkvPart part : {QkvPart::kQuery, QkvPart::kKey, QkvPart::kValue}) {
        add(qkv, fused_qkv_rows(c, layout, part));
      }
      EXPECT_TRUE(is_bijection(qkv, fused_qkv_row_count(c)));
      std::vector<int64_t> gate_up = expand(gate_up_rows(c, layout, GateUpPart::kGate));
      add(gate_up, gate_up_rows(c, layout, GateUpPart::kUp));
      EXPECT_TRUE(is_bijection(gate_up, 2 * c.intermediate_size));
    }
  }
}

// There are two key-value heads of three rows, and two query heads for each.
TEST(RowLayouts, FusedProjectionsRowByRow) {
  using Rows = std::vector<int64_t>;
  const ModelConfig c = sizes(4, 2, 3, 3);
  const auto whole = PackedLayout::kConcatenated;
  EXPECT_EQ(expand(fused_qkv_rows(c, whole, QkvPart::kQuery)),
            (Rows{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(expand(fused_qkv_rows(c, whole, QkvPart::kKey)), (Rows{12, 13, 14, 15, 16, 17}));
  EXPECT_EQ(expand(fused_qkv_rows(c, whole, QkvPart::kValue)), (Rows{18, 19, 20, 21, 22, 23}));
  EXPECT_EQ(expand(gate_up_rows(c, whole, GateUpPart::kUp)), (Rows{3, 4, 5}));
  const auto turns = PackedLayout::kInterleaved;
  EXPECT_EQ(expand(fused_qkv_rows(c, turns, QkvPart::kQuery)),
            (Rows{0, 1, 2, 3, 4, 5, 12, 13, 14, 15, 16, 17}));
  EXPECT_EQ(expand(fused_qkv_rows(c, turns, QkvPart::kKey)), (Rows{6, 7, 8, 18, 19, 20}));
  EXPECT_EQ(expand(fused_qkv_rows(c, turns, QkvPart::kValue)), (Rows{9, 10, 11, 21, 22, 23}));
  EXPECT_EQ(expand(gate_up_rows(c, turns, GateUpPart::kGate)), (Rows{0, 2, 4}));
  EXPECT_EQ(expand(gate_up_rows(c, turns, GateUpPart::kUp)), (Rows{1, 3, 5}));
}

// The formulas follow the reshapes of the reference implementation, row by row, for each head and
// dimension. Group g belongs to key head g and has 2 Dk + 2 r Dv rows.
TEST(RowLayouts, EqualTheFormulasPerRow) {
  const auto turns = PackedLayout::kInterleaved;
  for (const LinearAttentionConfig& c : layouts()) {
    const int64_t r = c.value_heads / c.key_heads;
    const int64_t group = 2 * c.key_dim + 2 * r * c.value_dim;
    std::vector<int64_t> q, k, v, z, b, a;
    for (int64_t g = 0; g < c.key_heads; ++g) {
      for (int64_t d = 0; d < c.key_dim; ++d) {
        q.push_back(g * group + d);
        k.push_back(g * group + c.key_dim + d);
      }
    }
    for (int64_t h = 0; h < c.value_heads; ++h) {
      b.push_back((h / r) * 2 * r + h % r);
      a.push_back((h / r) * 2 * r + r + h % r);
      for (int64_t d = 0; d < c.value_dim; ++d) {
        v.push_back((h / r) * group + 2 * c.key_dim + (h % r) * c.value_dim + d);
        z.push_back((h / r) * group + 2 * c.key_dim + (r + h % r) * c.value_dim + d);
      }
    }
    EXPECT_EQ(expand(qkvz_rows(c, turns, QkvzPart::kQuery)), q);
    EXPECT_EQ(expand(qkvz_rows(c, turns, QkvzPart::kKey)), k);
    EXPECT_EQ(expand(qkvz_rows(c, turns, QkvzPart::kValue)), v);
    EXPECT_EQ(expand(qkvz_rows(c, turns, QkvzPart::kGate)), z);
    EXPECT_EQ(expand(ba_rows(c, turns, BaPart::kBeta)), b);
    EXPECT_EQ(expand(ba_rows(c, turns, BaPart::kAlpha)), a);
  }
}

TEST(RowLayouts, CodegenBlocksAreQueryValueKey) {
  using Rows = std::vector<int64_t>;
  ModelConfig c = sizes(4, 4, 2, 1);
  c.numbers[kQkvBlocks] = 2;  // a block has two heads, so four rows each of q, k and v
  EXPECT_EQ(expand(codegen_qkv_rows(c, QkvPart::kQuery)), (Rows{0, 1, 2, 3, 12, 13, 14, 15}));
  EXPECT_EQ(expand(codegen_qkv_rows(c, QkvPart::kValue)), (Rows{4, 5, 6, 7, 16, 17, 18, 19}));
  EXPECT_EQ(expand(codegen_qkv_rows(c, QkvPart::kKey)), (Rows{8, 9, 10, 11, 20, 21, 22, 23}));
}

TEST(RowLayouts, NeighboursBecomeHalves) {
  using Rows = std::vector<int64_t>;
  ModelConfig c = sizes(2, 2, 8, 1);
  c.rope.partial_rotary_factor = 0.75;
  EXPECT_EQ(expand(pairs_to_halves(2, c.head_dim, c.rotary_dim())),
            (Rows{0, 2, 4, 1, 3, 5, 6, 7, 8, 10, 12, 9, 11, 13, 14, 15}));
  for (double partial : {0.25, 0.5, 1.0}) {
    c.rope.partial_rotary_factor = partial;
    EXPECT_TRUE(is_bijection(expand(pairs_to_halves(2, c.head_dim, c.rotary_dim())), 16));
  }
}

TEST(RowLayouts, RunsThatTouchAreOne) {
  LinearAttentionConfig c;
  c.key_heads = c.value_heads = 1;
  c.key_dim = c.value_dim = 4;
  for (PackedLayout layout : kLayouts)
    EXPECT_EQ(qkv_rows(c, layout), RowOrder{run_piece(0, 0, 12)});
}

}  // namespace
}  // namespace ferry::converters::row_layouts_test
