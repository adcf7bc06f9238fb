#include "converters/row_layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace ferry {
namespace {

std::vector<int64_t> expand(const std::vector<RowRun>& runs) {
  std::vector<int64_t> rows;
  for (const RowRun& run : runs) {
    for (int64_t i = 0; i < run.count; ++i) rows.push_back(run.begin + i);
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

TEST(RowLayouts, EverySplitUsesEveryRowOnce) {
  for (const LinearAttentionConfig& c : layouts()) {
    std::vector<int64_t> qkvz = expand(qkv_rows(c));
    EXPECT_EQ(std::ssize(qkvz), c.conv_channels());
    std::ranges::copy(expand(qkvz_rows(c, QkvzPart::kGate)), std::back_inserter(qkvz));
    EXPECT_TRUE(is_bijection(qkvz, qkvz_row_count(c)));

    std::vector<int64_t> ba = expand(ba_rows(c, BaPart::kBeta));
    EXPECT_EQ(std::ssize(ba), c.value_heads);
    std::ranges::copy(expand(ba_rows(c, BaPart::kAlpha)), std::back_inserter(ba));
    EXPECT_TRUE(is_bijection(ba, ba_row_count(c)));
  }
}

// The formulas row by row, per head and dimension, as the reference implementation's reshapes give
// them: group g = key head, of 2 Dk + 2 r Dv rows.
TEST(RowLayouts, EqualTheFormulasPerRow) {
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
    EXPECT_EQ(expand(qkvz_rows(c, QkvzPart::kQuery)), q);
    EXPECT_EQ(expand(qkvz_rows(c, QkvzPart::kKey)), k);
    EXPECT_EQ(expand(qkvz_rows(c, QkvzPart::kValue)), v);
    EXPECT_EQ(expand(qkvz_rows(c, QkvzPart::kGate)), z);
    EXPECT_EQ(expand(ba_rows(c, BaPart::kBeta)), b);
    EXPECT_EQ(expand(ba_rows(c, BaPart::kAlpha)), a);
  }
}

TEST(RowLayouts, RunsThatTouchAreOne) {
  LinearAttentionConfig c;
  c.key_heads = c.value_heads = 1;
  c.key_dim = c.value_dim = 4;
  EXPECT_EQ(qkv_rows(c), rows_range(0, 12));
}

}  // namespace
}  // namespace ferry
