// ChunkReader reads chunked data, filtered or not, without libhdf5.
//
// A chunk is a small row-major array of the rank of the tensor. Chunks at the end of a dimension
// reach beyond it. The filters were applied to the chunk in the order of their list:
//   shuffle     all first bytes of the elements, then all second bytes, ...; a remainder as it is
//   deflate     a zlib stream
//   fletcher32  the sum of the bytes so far, little-endian, behind them
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/file.h"
#include "core/result.h"
#include "formats/hdf5/check.h"

namespace ferry::hdf5 {

// Returns the checksum of the fletcher32 filter.
uint32_t fletcher32(std::span<const std::byte> data);

struct ChunkShape {
  uint64_t bytes = 0;  // size of the chunk without filters
  uint64_t element_bytes = 0;
};

// Undoes the filters. With `to_sum` it stops after the checksum; otherwise the result has
// shape.bytes bytes. kBadInput for a wrong checksum and for a stream that does not inflate to the
// size of the chunk. The message names neither the file nor the tensor.
Result<std::vector<std::byte>> unfilter_chunk(std::vector<std::byte> stored,
                                              const std::vector<Filter>& filters, uint32_t skipped,
                                              const ChunkShape& shape, bool to_sum = false);

// Reads chunked tensors of one source. Caches the most recently used chunks. Thread-safe.
class ChunkReader {
 public:
  // Reads bytes [offset, offset + out.size()) of `tensor`, which is in `input`. `id` identifies the
  // tensor in the cache.
  Status read(const InputFile& input, const CheckedTensor& tensor, size_t id, uint64_t offset,
              std::span<std::byte> out);

 private:
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;
  using Key = std::pair<size_t, size_t>;  // tensor, chunk
  Result<Bytes> chunk(const InputFile& input, const CheckedTensor& tensor, const Key& key);

  std::mutex mutex_;
  std::list<std::pair<Key, Bytes>> recent_;  // most recently used first
  std::map<Key, std::list<std::pair<Key, Bytes>>::iterator> places_;
  uint64_t held_bytes_ = 0;
};

// Checks every fletcher32 checksum of the tensor.
Status check_sums(const InputFile& input, const CheckedTensor& tensor);

// Fills `out` with copies of `element`. `out` begins at byte `offset` of a tensor.
void fill_elements(std::span<std::byte> out, uint64_t offset, std::span<const std::byte> element);

// Reverses the bytes of every element.
void swap_elements(std::span<std::byte> data, size_t element_bytes);

}  // namespace ferry::hdf5
