#include "core/strided.h"

#include <algorithm>
#include <utility>

#include "core/checked.h"

namespace ferry {
namespace {

// Returns whether two pieces differ in their offsets only.
bool alike(const StridedPiece& a, const StridedPiece& b) {
  return a.tensor == b.tensor && a.axes == b.axes;
}

void append(std::vector<StridedPiece>& pieces, StridedPiece piece) {
  const int64_t count = piece.count();
  if (count == 0) return;
  if (!pieces.empty() && piece.is_run() && pieces.back().is_run() &&
      pieces.back().tensor == piece.tensor) {
    const int64_t before = pieces.back().count();
    if (pieces.back().offset + before == piece.offset) {
      pieces.back() = run_piece(piece.tensor, pieces.back().offset, before + count);
      return;
    }
  }
  pieces.push_back(std::move(piece));
}

StridedPiece simplified(const StridedPiece& piece) {
  StridedPiece out{.tensor = piece.tensor, .offset = piece.offset};
  for (const StridedAxis& axis : piece.axes) add_axis(out, axis);
  return out;
}

// Returns how many of `pieces`, from the first on, are alike and at a constant distance; at least
// one.
size_t series(std::span<const StridedPiece> pieces) {
  size_t count = 1;
  while (count < pieces.size() && alike(pieces[0], pieces[count])) {
    const int64_t step = pieces[count].offset - pieces[count - 1].offset;
    if (step < 0 || step != pieces[1].offset - pieces[0].offset) break;
    ++count;
  }
  return count;
}

std::vector<StridedPiece> fold_once(std::span<const StridedPiece> pieces) {
  std::vector<StridedPiece> out;
  while (!pieces.empty()) {
    const size_t count = series(pieces);
    StridedPiece piece{.tensor = pieces[0].tensor, .offset = pieces[0].offset};
    if (count > 1) {
      add_axis(piece, {static_cast<int64_t>(count), pieces[1].offset - pieces[0].offset});
    }
    for (const StridedAxis& axis : pieces[0].axes) add_axis(piece, axis);
    append(out, std::move(piece));
    pieces = pieces.subspan(count);
  }
  return out;
}

// Appends the elements [from, from + count) of the walk over the axes from `level` on. The walk
// begins at element `base`. The elements are a part of one slice, whole slices, and a part of the
// last slice.
void append_range(std::vector<StridedPiece>& out, const StridedPiece& piece, size_t level,
                  int64_t base, int64_t from, int64_t count) {
  if (count == 0) return;
  if (level == piece.axes.size()) return append(out, run_piece(piece.tensor, base, 1));
  int64_t slice = 1;
  for (size_t i = level + 1; i < piece.axes.size(); ++i) slice *= piece.axes[i].size;
  const int64_t stride = piece.axes[level].stride;
  if (from % slice != 0) {
    const int64_t part = std::min(slice - from % slice, count);
    append_range(out, piece, level + 1, base + from / slice * stride, from % slice, part);
    from += part;
    count -= part;
  }
  if (const int64_t whole = count / slice; whole > 0) {
    StridedPiece slices{.tensor = piece.tensor, .offset = base + from / slice * stride};
    add_axis(slices, {whole, stride});
    for (size_t i = level + 1; i < piece.axes.size(); ++i) add_axis(slices, piece.axes[i]);
    append(out, std::move(slices));
    from += whole * slice;
    count -= whole * slice;
  }
  append_range(out, piece, level + 1, base + from / slice * stride, 0, count);
}

}  // namespace

int64_t StridedPiece::count() const {
  int64_t count = 1;
  for (const StridedAxis& axis : axes) count *= axis.size;
  return count;
}

bool StridedPiece::is_run() const {
  return axes.empty() || (axes.size() == 1 && axes[0].stride == 1);
}

StridedPiece run_piece(size_t tensor, int64_t offset, int64_t count) {
  StridedPiece piece{.tensor = tensor, .offset = offset};
  if (count != 1) piece.axes = {{count, 1}};
  return piece;
}

void add_axis(StridedPiece& piece, StridedAxis axis) {
  if (axis.size == 1) return;
  if (!piece.axes.empty() && axis.stride > 0 && piece.axes.back().stride % axis.stride == 0 &&
      piece.axes.back().stride / axis.stride == axis.size) {
    piece.axes.back() = {piece.axes.back().size * axis.size, axis.stride};
  } else {
    piece.axes.push_back(axis);
  }
}

std::optional<int64_t> end_of(const StridedPiece& piece) {
  const auto is_negative = [](const StridedAxis& axis) { return axis.size < 0 || axis.stride < 0; };
  if (piece.offset < 0 || std::ranges::any_of(piece.axes, is_negative)) return std::nullopt;
  if (std::ranges::count(piece.axes, 0, &StridedAxis::size) > 0) return piece.offset;
  std::optional<int64_t> end = checked_add<int64_t>(piece.offset, 1), count = 1;
  for (const StridedAxis& axis : piece.axes) {
    const auto reach = checked_mul(axis.size - 1, axis.stride);
    end = end && reach ? checked_add(*end, *reach) : std::nullopt;
    count = count ? checked_mul(*count, axis.size) : std::nullopt;
  }
  return count ? end : std::nullopt;
}

void for_each_run(const StridedPiece& piece, const std::function<void(int64_t, int64_t)>& body) {
  const bool inner_run = !piece.axes.empty() && piece.axes.back().stride == 1;
  const size_t outer = piece.axes.size() - (inner_run ? 1 : 0);
  const int64_t run = inner_run ? piece.axes.back().size : 1;
  if (piece.count() == 0) return;
  std::vector<int64_t> at(outer, 0);
  int64_t offset = piece.offset;
  for (;;) {
    body(offset, run);
    size_t level = outer;
    while (level > 0) {
      const StridedAxis& axis = piece.axes[level - 1];
      offset += axis.stride;
      if (++at[level - 1] < axis.size) break;
      offset -= axis.size * axis.stride;
      at[--level] = 0;
    }
    if (level == 0) return;
  }
}

std::vector<StridedPiece> folded(std::span<const StridedPiece> pieces) {
  std::vector<StridedPiece> out;
  for (const StridedPiece& piece : pieces) append(out, simplified(piece));
  for (;;) {
    std::vector<StridedPiece> fewer = fold_once(out);
    if (fewer.size() == out.size()) return fewer;
    out = std::move(fewer);
  }
}

std::vector<StridedPiece> select(std::span<const StridedPiece> from,
                                 std::span<const StridedPiece> what) {
  std::vector<int64_t> begins;  // first element of each piece in the sequence
  int64_t end = 0;
  for (const StridedPiece& piece : from) {
    begins.push_back(end);
    end += piece.count();
  }
  std::vector<StridedPiece> out;
  const auto append_run = [&](int64_t at, int64_t count) {
    auto i = static_cast<size_t>(std::ranges::upper_bound(begins, at) - begins.begin()) - 1;
    for (; count > 0; ++i) {
      const int64_t part = std::min(begins[i] + from[i].count() - at, count);
      append_range(out, from[i], 0, from[i].offset, at - begins[i], part);
      at += part;
      count -= part;
    }
  };
  for (const StridedPiece& piece : what) {
    if (from.size() == 1 && from[0].is_run()) {
      StridedPiece moved = piece;
      moved.tensor = from[0].tensor;
      moved.offset += from[0].offset;
      append(out, std::move(moved));
    } else {
      for_each_run(piece, append_run);
    }
  }
  return folded(out);
}

std::vector<StridedPiece> rows_to_elements(std::span<const StridedPiece> rows, int64_t width) {
  std::vector<StridedPiece> out;
  for (const StridedPiece& row : rows) {
    StridedPiece piece{.tensor = row.tensor, .offset = row.offset * width};
    for (const StridedAxis& axis : row.axes) add_axis(piece, {axis.size, axis.stride * width});
    add_axis(piece, {width, 1});
    out.push_back(std::move(piece));
  }
  return out;
}

}  // namespace ferry
