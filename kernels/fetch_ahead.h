// How far ahead products of one row of activations ask memory for weights. Such a product reads
// each weight once and waits for memory most of its time.
#pragma once

#include <cstddef>

namespace ferry::kernels {

struct FetchAhead {
  size_t stream = 0;  // bytes, where rows of weights are read one after the other; 0: not at all
  size_t band = 0;    // bytes in each of the streams of banded products (compute_tile-inl.h)
};

// How far ahead this processor should fetch.
const FetchAhead& fetch_ahead();

}  // namespace ferry::kernels
