// StridedPiece describes elements of a tensor in the order of a strided walk: a slice, a transpose,
// a permutation of rows. A list of pieces, one after the other, describes every re-layout in Ferry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "core/result.h"

namespace ferry {

struct StridedAxis {
  int64_t size = 0, stride = 0;  // in elements; neither is negative
  bool operator==(const StridedAxis&) const = default;
};

// Element (i, j, ...) of the piece is element offset + i * axes[0].stride + j * axes[1].stride +
// ... of the tensor. The elements of the tensor and of the piece are counted row-major.
struct StridedPiece {
  size_t tensor = 0;  // as the owner of the tensors numbers them
  int64_t offset = 0;
  std::vector<StridedAxis> axes = {};  // outermost first
  bool operator==(const StridedPiece&) const = default;

  int64_t count() const;  // number of elements; the product of the sizes must not overflow
  bool is_run() const;    // whether the elements are consecutive
};

// Returns the piece of the elements [offset, offset + count) of a tensor.
StridedPiece run_piece(size_t tensor, int64_t offset, int64_t count);

// Appends an inner axis. An axis of size 1 is left out. An axis that continues the previous one is
// joined with it. The piece must lie in an array, so that no product overflows.
void add_axis(StridedPiece& piece, StridedAxis axis);

// Returns the end (exclusive) of the elements of the tensor that the piece reaches; the offset for
// an empty piece. nullopt if a size, a stride or the offset is negative, or if a product overflows.
std::optional<int64_t> end_of(const StridedPiece& piece);

// Calls body(offset, count) for each run of consecutive elements, in the order of the piece.
void for_each_run(const StridedPiece& piece, const std::function<void(int64_t, int64_t)>& body);

// Returns the same elements in fewer pieces: adjacent runs are joined, and pieces that follow each
// other at a constant distance become one piece with one more axis. Pieces without elements are
// left out.
std::vector<StridedPiece> folded(std::span<const StridedPiece> pieces);

// Returns the elements `what` of the sequence that the pieces `from` form. The offsets and strides
// of `what` count elements of that sequence. Every piece of `what` lies in the sequence.
std::vector<StridedPiece> select(std::span<const StridedPiece> from,
                                 std::span<const StridedPiece> what);

// Converts pieces that count rows of `width` elements into pieces that count elements.
std::vector<StridedPiece> rows_to_elements(std::span<const StridedPiece> rows, int64_t width);

// Fills `out` with the bytes of the tensor from `offset` on.
using ReadTensor = std::function<Status(uint64_t offset, std::span<std::byte> out)>;

// Reads the elements [from, from + count) of the piece from windows of consecutive bytes, and
// writes them to `out`, one after the other. The memory is bounded by the size of the request, not
// by that of the tensor. `item` is the size of an element: 1, 2, 4, 8 or 16 bytes. `read` is called
// only for bytes between the first and the last element of the piece, and for at most twice as many
// bytes at a time as `out` has. The caller has checked that the piece lies in the tensor.
Status gather(const StridedPiece& piece, int64_t item, int64_t from, int64_t count,
              const ReadTensor& read, std::byte* out);

}  // namespace ferry
