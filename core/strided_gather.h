// gather() reads the elements of a StridedPiece from windows of consecutive bytes. Its memory is
// bounded by the size of the request, not by that of the tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "core/result.h"
#include "core/strided.h"

namespace ferry {

// Fills `out` with the bytes of the tensor from `offset` on.
using ReadTensor = std::function<Status(uint64_t offset, std::span<std::byte> out)>;

// Writes the elements [from, from + count) of the piece to `out`, one after the other. `item` is
// the size of an element: 1, 2, 4, 8 or 16 bytes. `read` is called only for bytes between the first
// and the last element of the piece, and for at most twice as many bytes at a time as `out` has.
// The caller has checked that the piece lies in the tensor.
Status gather(const StridedPiece& piece, int64_t item, int64_t from, int64_t count,
              const ReadTensor& read, std::byte* out);

}  // namespace ferry
