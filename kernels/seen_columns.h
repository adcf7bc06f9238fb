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
  // Returns the number of columns of all ranges.
  size_t columns() const;
  // Adds columns behind all others. With kMost ranges the last one becomes longer instead, and the
  // result is false: the ranges then have columns that were not added.
  bool add(int64_t begin, int64_t end);
};

// Softmax gives 0 to a column that the mask lowers by so much, whatever its score: exp() underflows
// at 104 below the highest score, and scores of attention differ by far less than the rest.
inline constexpr float kHidden = 30000;

// The columns that some row of a mask shows. A column is hidden if every row lowers it by kHidden
// or more. A row that shows nothing makes all columns seen.
struct SeenColumns {
  // The softmax adds columns modulo 64, so it works on whole steps of as many.
  static constexpr int64_t kStep = 64;
  // Products read what is seen in finer steps, because a cache is read at the speed of memory.
  static constexpr int64_t kFineStep = 16;
  ColumnRanges steps, fine;  // `fine` is within `steps`

  // Sets the ranges of a mask [rows,columns] that is added to scores.
  void find(const float* mask, int64_t rows, int64_t columns);
};

// The columns that a mask shows, found when they are first asked for in an execution.
class SeenMask {
 public:
  static constexpr int64_t kRows = 64;  // rows of a block

  // Forgets the mask of the last execution.
  void restart() { has_whole_ = has_blocks_ = false; }
  // Returns the columns of all rows of a mask [1,...,rows,columns].
  const SeenColumns& whole(const Tensor& mask);
  // Returns the columns of each block of rows. Allocates only for more rows than before.
  std::span<const SeenColumns> blocks(const Tensor& mask);

 private:
  bool has_whole_ = false, has_blocks_ = false;
  SeenColumns whole_;
  std::vector<SeenColumns> blocks_;
};

// Returns the SeenMask that is the data of argument `i`.
inline SeenMask& seen_mask(const Call& call, size_t i) {
  return *reinterpret_cast<SeenMask*>(call.args[i]->tensor->data);
}

// The kernels below are those of the operators of the same names, for f32 and the columns of `seen`
// only; other columns of the outs are unspecified. Where only the step of a column is seen, the sum
// is the mask alone, and the softmax 0. Shapes are static and fit. Programs cannot contain these
// kernels.
Status seen_add(const Call& call);  // self, mask, alpha (not read) -> out, then seen
// self, dim (the last one), half_to_float -> out, then mask, seen
Status seen_softmax(const Call& call);

}  // namespace ferry::kernels
