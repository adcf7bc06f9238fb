// Attention over the columns that a mask shows. Static programs compute scores of every column of
// the context, and masks hide most of them: the softmax gives a hidden column exactly 0. Kernels
// that know the shown columns leave out the others, with the same bits in what remains.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "kernels/kernel_table.h"

namespace ferry::kernels {

// Columns [begin, end).
struct ColumnRange {
  int64_t begin, end;
};

// Ranges of columns, ascending and disjoint.
struct ColumnRanges {
  static constexpr size_t kMost = 16;
  size_t count = 0;
  ColumnRange ranges[kMost] = {};

  std::span<const ColumnRange> span() const { return {ranges, count}; }
  // Adds columns behind all others. The last range becomes longer if there are kMost ranges.
  void add(int64_t begin, int64_t end);
};

// The columns that some row of a mask shows.
struct SeenColumns {
  // The softmax adds columns modulo 64, so it works on whole steps of as many.
  static constexpr int64_t kStep = 64;
  // Products read what is seen in finer steps, because a cache is read at the speed of memory.
  static constexpr int64_t kFineStep = 16;
  ColumnRanges steps, fine;

  std::span<const ColumnRange> span() const { return steps.span(); }
  // Sets the ranges of a mask [rows, columns] that is added to scores. A column is hidden if every
  // row lowers it by kHidden or more. A row that shows nothing makes all columns seen.
  void find(const float* mask, int64_t rows, int64_t columns);
};
// The softmax of a column is exactly 0 unless its score is above the highest score by almost as
// much.
inline constexpr float kHidden = 30000;

// The kernels below are those of the operators of the same names, for f32 and the columns of `seen`
// only; other columns of the outs are unspecified. Where only the step of a column is seen, the sum
// is the mask alone, and the softmax 0. Shapes are static and fit. Programs cannot contain these
// kernels.
Status seen_add(const Call& call);      // self, mask, alpha (not read) -> out, then seen
Status seen_softmax(const Call& call);  // self, dim (the last one), half_to_float -> out, then seen

// The columns of a mask that blocks of its rows show.
struct SeenMask {
  static constexpr int64_t kRows = 64;  // rows of a block
  SeenColumns whole;
  std::vector<SeenColumns> blocks;
  // Sets `blocks`. Allocates only for more rows than before.
  void find_blocks(const float* mask, int64_t rows, int64_t columns);
};

// Returns the argument `seen`, which is a tensor whose data is a SeenMask.
inline SeenMask& seen_mask(const Call& call, size_t i) {
  return *reinterpret_cast<SeenMask*>(call.args[i]->tensor->data);
}

}  // namespace ferry::kernels
