// The distances at which products of a few rows of activations fetch weights from memory. Such a
// product reads each weight once or a few times, and waits for memory most of its time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ferry::kernels {

// How far behind the bytes that a product reads it fetches others, and into which cache.
struct FetchDistance {
  size_t bytes = 0;          // 0 for no fetches
  bool into_second = false;  // into the second cache only, else into the first too

  // Fetches the cache line of the byte at p + bytes. The address may lie behind the matrix, because
  // processors ignore a fetch of unmapped memory. Always inline, because GCC 12 removes calls of
  // functions that do nothing else than fetch.
  [[gnu::always_inline]] void fetch(const void* p) const {
    const auto* at = reinterpret_cast<const void*>(reinterpret_cast<uintptr_t>(p) + bytes);
    if (into_second) {
      __builtin_prefetch(at, 0, 2);
    } else {
      __builtin_prefetch(at, 0, 3);
    }
  }
};

struct FetchAhead {
  // for rows of weights that are read one or two after the other. Tiles of blocks take its cache:
  // their distance is the next tile
  FetchDistance stream = {};
  // for blocks of 256: of rows that are read one after the other, or four at once
  FetchDistance blocks = {};
  // for 4-bit codes in groups, and for blocks of nibbles whose rows are read four at once
  FetchDistance nibbles = {};
  // the least distance for these blocks where four rows have more bytes than `nibbles`, or 0 for
  // `nibbles` there too
  FetchDistance long_nibbles = {};
  FetchDistance band = {};  // in each stream of banded products (compute_tile-inl.h)

  // Returns the distance for blocks of nibbles of which four rows have `bytes` bytes. If it were
  // less than that, the last of the four rows would be read before they are fetched.
  FetchDistance four_rows(size_t bytes) const {
    if (bytes <= nibbles.bytes || long_nibbles.bytes == 0) return nibbles;
    return {bytes > long_nibbles.bytes ? bytes : long_nibbles.bytes, long_nibbles.into_second};
  }
};

// Returns the distances on this processor for products of `rows` rows of activations.
const FetchAhead& fetch_ahead(size_t rows);

}  // namespace ferry::kernels
