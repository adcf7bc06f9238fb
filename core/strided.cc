#include "core/strided.h"

#include <algorithm>
#include <cstring>
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

namespace {

// The requested part of the piece is cut into boxes, which are ranges of all axes. Each box is
// gathered from windows of consecutive elements.
// A window may hold this many times the elements that are needed from it.
constexpr int64_t kWindowSlack = 2;

// An axis of a box, with its steps in the stored tensor and in the output.
struct BoxAxis {
  int64_t size, from, to;
};

// Copies from `in` to `out`, which both point to the first element of the box.
template <size_t Size>
void scatter(const std::byte* in, std::byte* out, std::span<const BoxAxis> axes) {
  if (axes.empty()) {
    std::memcpy(out, in, Size);
    return;
  }
  const BoxAxis& axis = axes[0];
  if (axes.size() == 1 && axis.from == 1 && axis.to == 1) {
    std::memcpy(out, in, static_cast<size_t>(axis.size) * Size);
    return;
  }
  const auto from = axis.from * static_cast<int64_t>(Size);
  const auto to = axis.to * static_cast<int64_t>(Size);
  for (int64_t i = 0; i < axis.size; ++i) {
    if (axes.size() == 1) {
      std::memcpy(out + i * to, in + i * from, Size);
    } else {
      scatter<Size>(in + i * from, out + i * to, axes.subspan(1));
    }
  }
}

void scatter(int64_t size, const std::byte* in, std::byte* out, std::span<const BoxAxis> axes) {
  switch (size) {
    case 1:
      return scatter<1>(in, out, axes);
    case 2:
      return scatter<2>(in, out, axes);
    case 4:
      return scatter<4>(in, out, axes);
    case 8:
      return scatter<8>(in, out, axes);
    default:
      return scatter<16>(in, out, axes);
  }
}

class Gather {
 public:
  Gather(const StridedPiece& piece, int64_t item, const ReadTensor& read)
      : axes_(piece.axes), offset_(piece.offset), size_(item), read_(read) {}

  Status run(int64_t from, int64_t count, std::byte* out) {
    return walk(0, offset_, from, count, out);
  }

 private:
  int64_t inner_count(size_t level) const {
    int64_t count = 1;
    for (size_t i = level + 1; i < axes_.size(); ++i) count *= axes_[i].size;
    return count;
  }

  // Gathers elements of the walk over the axes from `level` on. The walk begins at element `base`
  // of the tensor. The elements are a part of one slice, whole slices, and a part of the last
  // slice.
  Status walk(size_t level, int64_t base, int64_t from, int64_t count, std::byte* out) {
    if (count == 0) return {};
    if (level == axes_.size()) return box({}, base, out);
    const int64_t slice = inner_count(level);
    const int64_t stride = axes_[level].stride;
    if (from % slice != 0) {
      const int64_t part = std::min(slice - from % slice, count);
      FERRY_RETURN_IF_ERROR(walk(level + 1, base + from / slice * stride, from % slice, part, out));
      from += part;
      count -= part;
      out += part * size_;
    }
    const int64_t whole = count / slice;
    if (whole > 0) {
      FERRY_RETURN_IF_ERROR(slices(level, base + from / slice * stride, whole, out));
      out += whole * slice * size_;
    }
    return walk(level + 1, base + (from / slice + whole) * stride, 0, count % slice, out);
  }

  Status slices(size_t level, int64_t base, int64_t count, std::byte* out) {
    std::vector<BoxAxis> axes;
    int64_t to = count * inner_count(level);
    for (size_t i = level; i < axes_.size(); ++i) {
      const int64_t size = i == level ? count : axes_[i].size;
      to /= size;
      if (size > 1) axes.push_back({size, axes_[i].stride, to});
    }
    return box(std::move(axes), base, out);
  }

  // Axes with small strides form a window that is read at once; the other axes are iterated.
  Status box(std::vector<BoxAxis> axes, int64_t base, std::byte* out) {
    std::stable_sort(axes.begin(), axes.end(),
                     [](const BoxAxis& a, const BoxAxis& b) { return a.from < b.from; });
    int64_t span = 1, wanted = 1;
    size_t inside = 0;
    for (; inside < axes.size(); ++inside) {
      const int64_t next_span = span + (axes[inside].size - 1) * axes[inside].from;
      const int64_t next_wanted = wanted * axes[inside].size;
      if (next_span > kWindowSlack * next_wanted) break;
      span = next_span;
      wanted = next_wanted;
    }
    std::vector<BoxAxis> window(axes.begin(), axes.begin() + static_cast<int64_t>(inside));
    // The axis that is outermost in the output comes first, so that writes are in order.
    std::ranges::sort(window, [](const BoxAxis& a, const BoxAxis& b) { return a.to > b.to; });
    const std::span<const BoxAxis> outer = std::span(axes).subspan(inside);
    return windows(outer, window, span, base, out);
  }

  Status windows(std::span<const BoxAxis> outer, std::span<const BoxAxis> window, int64_t span,
                 int64_t base, std::byte* out) {
    if (!outer.empty()) {
      for (int64_t i = 0; i < outer.back().size; ++i) {
        FERRY_RETURN_IF_ERROR(windows(outer.first(outer.size() - 1), window, span,
                                      base + i * outer.back().from,
                                      out + i * outer.back().to * size_));
      }
      return {};
    }
    const auto bytes = static_cast<size_t>(span * size_);
    const auto offset = static_cast<uint64_t>(base * size_);
    const bool direct =
        window.empty() || (window.size() == 1 && window[0].from == 1 && window[0].to == 1);
    if (direct) return read_(offset, {out, bytes});
    window_.resize(std::max(window_.size(), bytes));
    FERRY_RETURN_IF_ERROR(read_(offset, {window_.data(), bytes}));
    scatter(size_, window_.data(), out, window);
    return {};
  }

  const std::vector<StridedAxis>& axes_;
  int64_t offset_;
  int64_t size_;  // bytes of an element
  const ReadTensor& read_;
  std::vector<std::byte> window_;
};

}  // namespace

Status gather(const StridedPiece& piece, int64_t item, int64_t from, int64_t count,
              const ReadTensor& read, std::byte* out) {
  return Gather(piece, item, read).run(from, count, out);
}

}  // namespace ferry
