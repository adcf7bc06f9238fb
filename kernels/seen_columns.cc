#include "kernels/seen_columns.h"

#include <algorithm>
#include <cstring>

#include "kernels/compute.h"
#include "kernels/kernel.h"

namespace ferry::kernels {
namespace {

// Returns whether some row shows a column of [begin, end).
bool shows(const float* mask, int64_t rows, int64_t columns, int64_t begin, int64_t end) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = mask + r * columns;
    int shown = 0;
    // A NaN counts as shown.
    for (int64_t c = begin; c < end; ++c) shown += row[c] <= -kHidden ? 0 : 1;
    if (shown > 0) return true;
  }
  return false;
}

// Returns whether every row has a column that the mask does not lower. The tokens of the call are
// the last columns, so the search begins there.
bool all_rows_show(const float* mask, int64_t rows, int64_t columns) {
  for (int64_t r = 0; r < rows; ++r) {
    int64_t c = columns - 1;
    while (c >= 0 && !(mask[r * columns + c] >= 0)) --c;
    if (c < 0) return false;
  }
  return true;
}

int64_t row_count(const Tensor& tensor) { return tensor.numel / tensor.sizes.back(); }

// The number of rows of a task, with enough work for a thread.
int64_t rows_of_task(const Tensor& tensor) {
  return std::max<int64_t>(1, 32768 / tensor.sizes.back());
}

// Computes the softmax of the seen columns of one row. They lie side by side meanwhile, which is
// where they have the bits of the whole row, because hidden columns add 0 to partial sums.
void softmax_of_seen(const float* row, float* out, std::span<const ColumnRange> seen) {
  int64_t n = 0;
  for (const ColumnRange& range : seen) {
    std::memmove(out + n, row + range.begin,
                 static_cast<size_t>(range.end - range.begin) * sizeof(float));
    n += range.end - range.begin;
  }
  softmax_row_f32(out, out, n);
  for (size_t i = seen.size(); i-- > 0;) {
    const int64_t count = seen[i].end - seen[i].begin;
    n -= count;
    if (n == seen[i].begin) return;  // so are all ranges before
    std::memmove(out + seen[i].begin, out + n, static_cast<size_t>(count) * sizeof(float));
  }
}

// Adds the mask to one row of scores. Either may be the row of the result.
void add_seen(const float* scores, const float* mask, float* out, const SeenColumns& seen) {
  const std::span<const ColumnRange> fine = seen.fine.span();
  size_t next = 0;
  for (const ColumnRange& step : seen.steps.span()) {
    int64_t c = step.begin;
    const auto mask_until = [&](int64_t end) {
      if (end <= c) return;
      std::memmove(out + c, mask + c, static_cast<size_t>(end - c) * sizeof(float));
    };
    while (c < step.end) {
      while (next < fine.size() && fine[next].end <= c) ++next;
      const int64_t begin =
          next < fine.size() ? std::clamp(fine[next].begin, c, step.end) : step.end;
      const int64_t end = next < fine.size() ? std::clamp(fine[next].end, begin, step.end) : begin;
      mask_until(begin);
      add_f32(scores + begin, mask + begin, out + begin, end - begin);
      c = std::max(end, begin);
    }
  }
}

}  // namespace

size_t ColumnRanges::columns() const {
  int64_t n = 0;
  for (const ColumnRange& range : span()) n += range.end - range.begin;
  return static_cast<size_t>(n);
}

bool ColumnRanges::add(int64_t begin, int64_t end) {
  const bool follows = count > 0 && ranges[count - 1].end >= begin;
  if (!follows && count < kMost) {
    ranges[count++] = {begin, end};
    return true;
  }
  ranges[count - 1].end = end;
  return follows;
}

void SeenColumns::find(const float* mask, int64_t rows, int64_t columns) {
  steps.count = fine.count = 0;
  const bool none_hidden = !all_rows_show(mask, rows, columns);
  bool is_fine = true;
  for (int64_t begin = 0; begin < columns; begin += kFineStep) {
    const int64_t end = std::min(columns, begin + kFineStep);
    if (!none_hidden && !shows(mask, rows, columns, begin, end)) continue;
    is_fine = fine.add(begin, end) && is_fine;
    const int64_t step = begin / kStep * kStep;
    steps.add(step, std::min(columns, step + kStep));
  }
  // Outside of `steps` there are no weights, so `fine` must not reach over a gap.
  if (!is_fine) fine = steps;
}

const SeenColumns& SeenMask::whole(const Tensor& mask) {
  if (!has_whole_) {
    const int64_t columns = mask.sizes.back();
    whole_.find(mask.as<float>(), mask.numel / columns, columns);
  }
  has_whole_ = true;
  return whole_;
}

std::span<const SeenColumns> SeenMask::blocks(const Tensor& mask) {
  if (has_blocks_) return blocks_;
  has_blocks_ = true;
  const int64_t columns = mask.sizes.back(), rows = mask.numel / columns;
  blocks_.resize(static_cast<size_t>((rows + kRows - 1) / kRows));
  for (int64_t begin = 0; begin < rows; begin += kRows) {
    blocks_[static_cast<size_t>(begin / kRows)].find(mask.as<float>() + begin * columns,
                                                     std::min(kRows, rows - begin), columns);
  }
  return blocks_;
}

Status seen_add(const Call& call) {
  const Tensor& self = tensor(call, 0);
  const Tensor& mask = tensor(call, 1);
  Tensor& out = tensor(call, 3);
  const SeenColumns& seen = seen_mask(call, 4).whole(mask);
  const int64_t columns = self.sizes.back(), mask_rows = row_count(mask);
  for_pieces(call.pool, row_count(self), rows_of_task(self), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t at = r * columns, mask_at = r % mask_rows * columns;
      add_seen(self.as<float>() + at, mask.as<float>() + mask_at, out.as<float>() + at, seen);
    }
  });
  return {};
}

Status seen_softmax(const Call& call) {
  const Tensor& self = tensor(call, 0);
  Tensor& out = tensor(call, 3);
  const std::span<const ColumnRange> seen = seen_mask(call, 5).whole(tensor(call, 4)).steps.span();
  const int64_t columns = self.sizes.back();
  for_pieces(call.pool, row_count(self), rows_of_task(self), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      softmax_of_seen(self.as<float>() + r * columns, out.as<float>() + r * columns, seen);
    }
  });
  return {};
}

}  // namespace ferry::kernels
