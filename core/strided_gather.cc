// The requested part of the piece is cut into boxes, which are ranges of all axes. Each box is
// gathered from windows of consecutive elements.
#include "core/strided_gather.h"

#include <algorithm>
#include <cstring>

namespace ferry {
namespace {

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
