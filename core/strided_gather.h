// Elements of an array in the order of a strided walk (a transpose, a permutation of rows, a
// slice), gathered from windows of consecutive bytes: memory is bounded by what is asked for, not
// by the array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/result.h"

namespace ferry {

struct WalkAxis {
  int64_t size, stride;  // elements; the stride is not negative
};

// A row-major walk: element (i, j, ...) of it is element offset + i * axes[0].stride +
// j * axes[1].stride + ... of the array.
struct StridedWalk {
  int64_t offset = 0;
  std::vector<WalkAxis> axes;  // outermost first
};

// Appends an inner axis; one of size 1 changes nothing, and one that only continues the axis before
// it is joined with that. The walk has elements.
void add_axis(StridedWalk& walk, WalkAxis axis);

// Bytes of the array from `offset` on.
using ReadArray = std::function<Status(uint64_t offset, std::span<std::byte> out)>;

// Elements [from, from + count) of the walk, one after the other, to `out`. `item` is the size of
// an element: 1, 2, 4, 8 or 16 bytes. `read` is asked only for bytes between the first and the last
// element of the walk, and for at most twice as many at a time as `out` has. The caller has checked
// that the walk lies in the array.
Status gather(const StridedWalk& walk, int64_t item, int64_t from, int64_t count,
              const ReadArray& read, std::byte* out);

}  // namespace ferry
