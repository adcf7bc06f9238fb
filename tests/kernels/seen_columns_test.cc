// Ranges of columns that a mask shows.
#include "kernels/seen_columns.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace ferry::kernels::seen_columns_test {
namespace {

constexpr int64_t kRows = 3, kColumns = 300;

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

Ranges pairs(const ColumnRanges& of) {
  Ranges ranges;
  for (const ColumnRange& range : of.span()) ranges.emplace_back(range.begin, range.end);
  return ranges;
}

struct Mask {
  std::vector<float> values = std::vector<float>(kRows * kColumns, -65535.0f);

  float& at(int64_t row, int64_t column) {
    return values[static_cast<size_t>(row * kColumns + column)];
  }
  SeenColumns columns() const {
    SeenColumns columns;
    columns.find(values.data(), kRows, kColumns);
    return columns;
  }
  Ranges seen() const { return pairs(columns().steps); }
  Ranges seen_finely() const { return pairs(columns().fine); }
};

TEST(SeenColumns, RangesCoverWhatAnyRowShows) {
  Mask mask;
  mask.at(0, 10) = 0;
  mask.at(1, 64) = 0;
  mask.at(2, 299) = 0;
  EXPECT_EQ(mask.seen(), (Ranges{{0, 128}, {256, 300}}));
  EXPECT_EQ(mask.seen_finely(), (Ranges{{0, 16}, {64, 80}, {288, 300}}));
}

TEST(SeenColumns, ARowThatShowsNothingShowsAll) {
  Mask mask;
  mask.at(0, 10) = 0;
  mask.at(1, 10) = 0;
  EXPECT_EQ(mask.seen(), (Ranges{{0, kColumns}}));
}

TEST(SeenColumns, AColumnThatIsLoweredALittleIsSeen) {
  Mask mask;
  for (int64_t row = 0; row < kRows; ++row) mask.at(row, 0) = 0;
  mask.at(1, 200) = -20;
  mask.at(2, 130) = std::nanf("");
  EXPECT_EQ(mask.seen(), (Ranges{{0, 64}, {128, 256}}));
}

TEST(SeenColumns, ManyRangesAreJoined) {
  constexpr int64_t columns = 64 * 64;
  std::vector<float> mask(columns, -65535.0f);
  for (int64_t c = 0; c < columns; c += 128) mask[static_cast<size_t>(c)] = 0;
  SeenColumns seen;
  seen.find(mask.data(), 1, columns);
  ASSERT_EQ(seen.steps.count, ColumnRanges::kMost);
  EXPECT_EQ(pairs(seen.fine), pairs(seen.steps)) << "no column outside of the steps";
  EXPECT_EQ(seen.steps.ranges[0].end, 64);
  EXPECT_EQ(seen.steps.ranges[ColumnRanges::kMost - 1].end, columns - 64);
}

}  // namespace
}  // namespace ferry::kernels::seen_columns_test
