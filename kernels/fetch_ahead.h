// The distance at which products of one row of activations fetch weights from memory. Such a
// product reads each weight once and waits for memory most of its time.
#pragma once

#include <cstddef>

namespace ferry::kernels {

struct FetchAhead {
  // bytes, for rows of weights that are read one after the other; 0 for no fetches
  size_t stream = 0;
  // the same, for 4-bit codes in groups and for blocks of nibbles whose rows are read four at once
  size_t nibbles = 0;
  size_t band = 0;  // bytes, in each stream of banded products (compute_tile-inl.h)
};

// Returns the distances for this processor.
const FetchAhead& fetch_ahead();

}  // namespace ferry::kernels
