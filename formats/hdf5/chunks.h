// Data that are stored in chunks, which may be filtered: read without libhdf5.
//
// A chunk is a small array of the rank of the tensor, row-major; those at the end of a dimension
// reach beyond it. The filters were applied to it in the order of their list:
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

// The sum of the fletcher32 filter.
uint32_t fletcher32(std::span<const std::byte> data);

struct ChunkShape {
  uint64_t bytes = 0;  // of the chunk without filters
  uint64_t element_bytes = 0;
};

// Undoes the filters, all of them or (`to_sum`) only as many as are needed to check the sum; the
// result has `bytes` in the first case. kBadInput for a wrong sum and for a stream that does not
// inflate to the size of the chunk; the message has neither file nor tensor.
Result<std::vector<std::byte>> unfilter_chunk(std::vector<std::byte> stored,
                                              const std::vector<Filter>& filters, uint32_t skipped,
                                              const ChunkShape& shape, bool to_sum = false);

// Reads chunked tensors of one source, and keeps the chunks that were used last. Thread-safe.
class ChunkReader {
 public:
  // Bytes [offset, offset + out.size()) of the tensor, which is in `input`. `tensor` identifies it.
  Status read(const InputFile& input, const CheckedTensor& tensor, size_t id, uint64_t offset,
              std::span<std::byte> out);

 private:
  using Bytes = std::shared_ptr<const std::vector<std::byte>>;
  using Key = std::pair<size_t, size_t>;  // tensor, chunk
  Result<Bytes> chunk(const InputFile& input, const CheckedTensor& tensor, const Key& key);

  std::mutex mutex_;
  std::list<std::pair<Key, Bytes>> recent_;  // the last used first
  std::map<Key, std::list<std::pair<Key, Bytes>>::iterator> places_;
  uint64_t held_bytes_ = 0;
};

// Checks all sums of a tensor, if it has any.
Status check_sums(const InputFile& input, const CheckedTensor& tensor);

// Fills `out`, which begins at byte `offset` of a tensor, with elements.
void fill_elements(std::span<std::byte> out, uint64_t offset, std::span<const std::byte> element);

// Reverses the bytes of every element.
void swap_elements(std::span<std::byte> data, size_t element_bytes);

}  // namespace ferry::hdf5
